"""Pages of documentation, as far as tests read them."""

from collections.abc import Iterator


def blocks(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Every fenced block: the line of its fence, what follows the fence's backquotes, its lines."""
    opened: tuple[int, str, list[str]] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            if opened:
                yield opened
            opened = None if opened else (number, line[3:].strip(), [])
        elif opened:
            opened[2].append(line)
    assert opened is None, "a fence is not closed"
