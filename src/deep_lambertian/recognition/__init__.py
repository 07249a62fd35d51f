"""Whose image is this? Distances to surfaces, detail under another light, and the odds of a stranger."""
