"""The command line of a past run, to be run again."""

from collections.abc import Sequence
from pathlib import Path

from fabbench.model.errors import RequestError
from fabbench.model.messages import REDACTED


def rerun_words(words: Sequence[str], more: Sequence[str], *, target: str, store: Path) -> list[str]:
    """Return the words of a command line with more options, on the target where it ran.

    Raise RequestError for a secret that is not stored, and is not given again.
    """
    end = words.index("--") if "--" in words else len(words)
    first, last = list(words[:end]), list(words[end:])
    names = {each.partition("=")[0] for each in more}
    for word in first:
        name = word.removeprefix("--env=").partition("=")[0]
        if REDACTED in word and name not in names and f"--env={name}" not in names:
            raise RequestError(
                f"The value of {name} is a secret, and is not stored.",
                hint=f"Pass it again: fabbench rerun … --env {name}=VALUE.",
            )
    if not any(word.partition("=")[0] == "--on" for word in (*first, *more)) and target:
        first += ["--on", target]
    return [*first, *more, "--store", str(store), *last]
