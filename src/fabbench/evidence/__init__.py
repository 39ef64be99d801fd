"""Records to verdicts: which network carried the data, and known errors."""
