"""Values that all stages share; units, sizes, errors."""
