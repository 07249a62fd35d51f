"""Photos as people have them: in colour, of any size, with the object somewhere in them."""
