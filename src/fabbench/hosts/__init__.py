"""What a host reports about itself: the probe script, and how its answer is read. Pure."""
