"""What a host tells of itself: the probe script, and how its answer is read. Pure."""
