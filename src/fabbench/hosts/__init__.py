"""What a host reports about itself: the probe script and the parser of its answer. Pure."""
