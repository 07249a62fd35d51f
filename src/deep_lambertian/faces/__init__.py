"""Finds a face in a photo, and aligns it to the frame of the model."""
