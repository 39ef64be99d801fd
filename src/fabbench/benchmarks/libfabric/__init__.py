"""What fi_pingpong and the fabtests share: how they print numbers, and what they say of themselves."""
