"""Command lines in a log: the program that each starts, and the words after it."""

import re

from fabbench.model.patterns import lazy

_PROMPTS = ("$ ", "# ", "> ", "+ ", "% ", "Running: ")
_STOP = lazy(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<)")


def read_words(text: str, program: re.Pattern[str], stop: re.Pattern[str] = _STOP) -> tuple[str, list[str]] | None:
    """Return the program that a line starts, without its directory, and the words after it; None for other lines.

    `program`: a pattern whose first group is the name; `stop`: where its arguments end.
    """
    match = program.search(text)
    if match is None:
        return None
    prompt, rest = text[: match.start()], stop.split(text[match.end() :], maxsplit=1)[0]
    words = rest.split()
    folder = prompt.rsplit(maxsplit=1)[-1] if prompt and not prompt[-1].isspace() else ""
    if not any(sign in f"{prompt} " for sign in _PROMPTS) and (
        prompt.removesuffix(folder).strip() or not any(word.startswith("-") for word in words)
    ):
        return None
    # A manual's synopsis has placeholders.
    return None if any(word.startswith(("[", "<")) for word in words) else (match[1], words)
