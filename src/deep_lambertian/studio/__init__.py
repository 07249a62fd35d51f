"""The studio: a local page that turns photos into surfaces under any light, and the API under it."""
