"""Whether settings of ``fabbench tune`` were measured with something else than is here."""

import re
from collections.abc import Mapping


def measured_elsewhere(what: str, measured: str, here: Mapping[str, str]) -> str:
    """Return a sentence that says what differs; empty: nothing that both sides know.

    `what` has the settings; `measured` is as ``NAME=VALUE,NAME=VALUE``, and `here` has facts of the
    same names, empty where they are not known.
    """
    facts = (fact.partition("=")[::2] for fact in measured.split(","))
    there = {name: value for name, value in facts if _differ(value, here.get(name, ""))}
    if not there:
        return ""
    was = ", ".join(f"{name} {value}" for name, value in there.items())
    now = ", ".join(f"{name} {here[name]}" for name in there)
    return f"{what} was measured with {was}; here: {now}. Tune again."


def _differ(one: str, other: str) -> bool:
    """Return whether two values are known, and neither has all words of the other.

    The catalog says H100, and nvidia-smi NVIDIA H100 80GB HBM3.
    """
    words = {*re.split("[ -]", one)}
    others = {*re.split("[ -]", other)}
    return bool(one and other) and not (words <= others or others <= words)
