"""Reference data: instance types, images, install paths."""
