"""Whether settings of ``fabbench tune`` were measured with something else than is here."""

import re
from collections.abc import Mapping


def measured_elsewhere(what: str, measured: str, here: Mapping[str, str]) -> str:
    """Return a sentence that says what differs; empty: nothing that both sides know.

    `what` has the settings; `measured` is as ``NAME=VALUE,NAME=VALUE``, and `here` has facts of the
    same names, empty where they are not known.
    """
    there: dict[str, str] = {}
    for fact in measured.split(","):
        name, _, value = fact.partition("=")
        if _differ(value, here.get(name, "")):
            there[name] = value
    if not there:
        return ""
    was = _in_words(there)
    now = _in_words({name: here[name] for name in there})
    return f"{what} was measured with {was}; here: {now}. Tune again."


def _differ(one: str, other: str) -> bool:
    """Return whether two values are known, and neither has all words of the other.

    The catalog says H100, and nvidia-smi NVIDIA H100 80GB HBM3.
    """
    words = {*re.split("[ -]", one)}
    others = {*re.split("[ -]", other)}
    alike = words <= others or others <= words
    return bool(one and other) and not alike


def _in_words(facts: Mapping[str, str]) -> str:
    """Return facts as ``NAME VALUE, NAME VALUE``."""
    return ", ".join(map(" ".join, facts.items()))
