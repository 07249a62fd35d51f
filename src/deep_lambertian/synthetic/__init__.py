"""Draws faces, solids, scenes and portraits of which everything is known."""
