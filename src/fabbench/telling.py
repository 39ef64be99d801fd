"""What launchers say while one waits."""

import sys


def tell(sentence: str) -> None:
    """Write a sentence on standard error, which is not for results."""
    sys.stderr.write(f"{sentence}\n")
