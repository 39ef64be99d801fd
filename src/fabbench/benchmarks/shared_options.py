"""Options that several benchmarks share, each with its own defaults."""

from typing import Any

from fabbench.model.options import DEVICE, Choice, Seconds, Size, Text, Whole, option, unique

MEMORY = Choice(("host", "cuda"))


def min_bytes(default: str) -> Any:
    """Declare the smallest size of a sweep."""
    help_ = f"Smallest size (1024-based: {default}, 4K)."
    return option(Size(), help_, "-b", "--min-bytes", default=default)


def max_bytes(default: str, more: str = "The steps from the smallest must reach it.") -> Any:
    """Declare the largest size of a sweep."""
    return option(Size(), f"Largest size. {more}", "-e", "--max-bytes", default=default)


def factor(default: str) -> Any:
    """Declare the factor of a sweep."""
    return option(Whole(1), "Multiply the size by this at each step.", "-f", "--factor", default=default)


def sizes(help_: str, *default: str) -> Any:
    """Declare sizes that are listed one by one."""
    help_ += " Can be given several times."
    return option(Size(), help_, "--size", many=unique, default=default or None)


def devices(help_: str) -> Any:
    """Declare devices that are listed one by one."""
    return option(DEVICE, f"{help_} Can be given several times.", "--device", many=tuple)


def iterations(default: str | None, flag: str = "--iterations", each: str = " per size") -> Any:
    """Declare how many operations are timed. None: as many as the program does by itself."""
    return option(Whole(1), f"Timed operations{each}.", "-n", flag, default=default)


def warmup(default: str | None, more: str = "") -> Any:
    """Declare how many operations run before the timed ones. None: as many as the program does by itself."""
    return option(Whole(0), f"Warm-up operations before the timed ones.{more}", "-w", "--warmup", default=default)


def nics() -> Any:
    """Declare how many NICs each rank must have used."""
    return option(Whole(0), "Required NICs per rank (0: any). Default: all of the fabric that the hosts have.")


def timeout(default: str, help_: str = "Abort a program that takes longer.") -> Any:
    """Declare the time limit that the help describes."""
    return option(Seconds(), help_, "--timeout", default=default)


def silence(default: str = "300") -> Any:
    """Declare how long a program may print nothing before it is considered hung."""
    return option(Seconds(), "Abort a program that is silent for SECONDS.", "--silence", default=default, only="run")


def extra() -> Any:
    """Declare the options of the benchmark program itself, which go after ``--``."""
    return option(Text("an option", "OPTIONS", ""), "Options of the program itself.", "--", many=tuple)
