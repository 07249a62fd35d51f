"""How the parameters of a model are learned from images."""
