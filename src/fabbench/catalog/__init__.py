"""Data about the world: instance types, images, install paths."""
