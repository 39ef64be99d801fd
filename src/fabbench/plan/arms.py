"""The arms of a tune: variants that differ from the default in variables, from records."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from fabbench.model import records
from fabbench.model.errors import RequestError, one_named
from fabbench.model.mappings import Names
from fabbench.model.options import VARIABLE
from fabbench.model.plan import Variant
from fabbench.plan.request import check_name

DEFAULT = "default"
"""The configuration without any arm."""
_Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=VARIABLE)]


class ArmRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An arm, as a file has it."""

    name: str
    env: Annotated[dict[_Name, str], msgspec.Meta(min_length=1)]
    set: str = ""  # What --arms calls it and others, of those that fabbench has
    benchmarks: Names = ()  # That may use it; none: all
    fabrics: Names = ()  # On which it has an effect, and one of which is asked for; none: all


def arms_of(given: str, benchmark: str, fabric: str = "") -> tuple[Variant, ...]:
    """Return the arms of a set or a TOML file that a benchmark may use, on a fabric that is asked.

    Empty: any fabric. Raise RequestError.
    """
    path = Path(given)
    try:
        arms = _arms_of_file if path.suffix == ".toml" else _set
        known = arms(given, benchmark)
    except (OSError, TypeError, ValueError) as error:
        raise RequestError(f"{path}: {error}.", hint="docs/tune.md shows the format.") from None
    found = [each for each in known if fabric in (each.fabrics or (fabric,))]
    if not found:
        raise RequestError(
            f"{path} has no variants for {benchmark} on this fabric.",
            hint="Pass --arms FILE.toml or their --fabric, as docs/tune.md shows.",
        )
    names = {DEFAULT, *(each.name for each in found)}
    if len(found) >= len(names):
        raise RequestError(f"{path} has a name twice, or default.")
    for each in found:
        check_name(each.name)
    return tuple(Variant(name=each.name, env=each.env) for each in found)


def _arms_of_file(name: str, benchmark: str) -> list[ArmRecord]:
    path = Path(name)
    known = records.parse(path.read_text("utf-8-sig"), path.name, ArmRecord)
    return _arms_for(benchmark, known)


def _set(name: str, benchmark: str) -> list[ArmRecord]:
    """Return the arms of a set of ours. Raise RequestError."""
    found = _arms_for(benchmark, records.load("fabbench.catalog", "arms.toml", ArmRecord))
    if found:
        one_named("set of variants", name, dict.fromkeys(each.set for each in found))
    return [each for each in found if each.set == name]


def _arms_for(benchmark: str, known: Iterable[ArmRecord]) -> list[ArmRecord]:
    return [each for each in known if benchmark in (each.benchmarks or (benchmark,))]
