"""The values that all stages pass on; units, sizes, errors."""
