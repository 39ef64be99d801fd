"""The sizes that somebody asks for, as text and as numbers. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from fabbench.errors import RequestError
from fabbench.units import parse_size

_MOST_SIZES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The sizes asked for, in bytes: from `first` to `last`, times `factor` or plus `step`."""

    first: int = 8
    last: int = 2 << 30
    factor: int = 2
    step: int = 0
    """Instead of `factor`, if not 0."""

    def __post_init__(self) -> None:
        """Raise RequestError for what is no sweep, or one without end."""
        grows = self.step > 0 or (self.factor > 1 and self.first > 0)
        if not 0 <= self.first <= self.last or not grows:
            how = f"steps of {self.step}" if self.step else f"factor {self.factor}"
            raise RequestError(
                f"There is no range of sizes from {self.first} to {self.last} bytes with {how}.",
                hint="Write such as -b 8 -e 2G -f 2.",
            )
        if self.step and (self.last - self.first) // self.step >= _MOST_SIZES:
            raise RequestError(
                f"Steps of {self.step} bytes would measure more than {_MOST_SIZES} sizes.",
                hint="Take larger steps, or a factor (-f 2).",
            )

    def words(self) -> tuple[str, ...]:
        """Write it as the options that nccl-tests take."""
        how = ("-i", str(self.step)) if self.step else ("-f", str(self.factor))
        return ("-b", str(self.first), "-e", str(self.last), *how)

    def sizes(self) -> Iterator[int]:
        """Give the sizes."""
        size = self.first
        while size <= self.last:
            yield size
            size = size + self.step if self.step else size * self.factor


def sweep(first: str, last: str, factor: int, step: str | None = None) -> Sweep:
    """Read the sizes asked for; raises RequestError."""
    return Sweep(first=size(first), last=size(last), factor=factor, step=size(step) if step else 0)


def size(text: str) -> int:
    """Read a size; raises RequestError."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise RequestError(f"{error}.") from None
