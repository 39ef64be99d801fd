"""The client of the stand-in."""
