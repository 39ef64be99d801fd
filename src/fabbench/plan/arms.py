"""The arms of a tune: variants that differ from the default in variables, from records."""

from pathlib import Path

import msgspec

from fabbench.model import records
from fabbench.model.errors import RequestError, one_named
from fabbench.model.mappings import Variables
from fabbench.model.options import Environment
from fabbench.model.plan import Variant
from fabbench.plan.request import check_name


class ArmRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An arm, as a file has it."""

    name: str
    env: Variables
    set: str = ""  # What --arms calls it and others, of those that fabbench has
    benchmarks: tuple[str, ...] = ()  # That may use it; none: all


def arms_of(given: str, benchmark: str) -> tuple[Variant, ...]:
    """Return the arms of a set or a TOML file. Raise RequestError."""
    path = Path(given)
    read = Environment().parse
    arms: dict[str, Variant] = {}
    try:
        if path.suffix == ".toml":
            found = records.parse(path.read_text("utf-8"), path.name, ArmRecord)
        else:
            known = records.load("fabbench.catalog", "arms.toml", ArmRecord)
            one_named("set of variants", given, {each.set: each for each in known})
            found = tuple(each for each in known if each.set == given)
        for each in found:
            check_name(each.name)
            pairs = map("=".join, each.env.items())
            env = dict(map(read, pairs))
            arms[each.name] = Variant(name=each.name, env=env)
            if each.benchmarks and benchmark not in each.benchmarks:
                usable = ", ".join(each.benchmarks)
                raise RequestError(f"--arms {given} is for {usable}.", hint="Choose others.")
    except (OSError, ValueError) as error:
        raise RequestError(f"{path}: {error}.", hint="docs/tune.md shows the format.") from None
    return tuple(arms.values())
