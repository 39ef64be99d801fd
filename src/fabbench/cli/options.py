"""Options that several commands share."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import click

from fabbench.cli.click_options import OptionType
from fabbench.model.log import Proof
from fabbench.model.option_types import File, Parsed
from fabbench.model.patterns import lazy
from fabbench.model.units import parse_size
from fabbench.plan import STORE

Function = TypeVar("Function", bound=Callable[..., Any])


store = click.option(
    "--store",
    type=OptionType(File("a directory", "DIRECTORY", directory=True)),
    metavar="DIRECTORY",
    default=STORE,
    envvar="FABBENCH_STORE",
    show_default=True,
    show_envvar=True,
    help="Directory of stored runs.",
)


fabric_of_logs = click.option(
    "--fabric",
    metavar="NAME",
    help="Judge the logs as measured on this fabric (efa, tcp, ib, roce, shm, p2p, ofi-tcp, or a libfabric "
    "provider): a log that shows another transport is off-fabric, one that shows none is unproven.",
)


def nodes_of_logs(command: Function) -> Function:
    """Add the options that describe what logs ran on; `known_proof` combines them."""
    for option in reversed(_NODES_OF_LOGS):
        command = option(command)
    return command


_NODES_OF_LOGS = (
    click.option(
        "--instance-type",
        metavar="TYPE",
        help="Type of the nodes, such as p5.48xlarge, or the link of one NIC, such as ib-ndr, if the log does not "
        "state it. It tells whether figures are normal; fewer EFA NICs than the type has are off-fabric.",
    ),
    click.option(
        "--nodes", type=click.IntRange(1, 65536), metavar="N", help="Number of nodes, if the log does not state it."
    ),
    click.option(
        "--nics",
        type=click.IntRange(0, 1024),
        metavar="N",
        help="Required NICs per rank (0: any). Default: those of the instance type.",
    ),
)


def known_proof(**known: Any) -> Proof | None:
    """Return what logs are judged against; None: nothing. Raise RequestError for an unknown type."""
    given = {name: value for name, value in known.items() if value is not None}
    if "instance_type" in given:
        from fabbench.catalog.expectations import require_system

        given["instance_type"] = require_system(given["instance_type"]).name
    return Proof(**given) if given else None


def _sizes(text: str) -> range:
    """Read a size, or a range of sizes with both ends."""
    first, dots, last = text.partition("..")
    try:
        low = parse_size(first) if first or not dots else 0
        high = (parse_size(last) if last else 1 << 62) if dots else low
    except ValueError as error:
        raise ValueError(f"{error}. Write 1M, 1M..1G, 1M.. or ..64K") from None
    if high < low:
        raise ValueError(f"{text!r} ends before it begins")
    return range(low, high + 1)


sizes = click.option(
    "--size",
    "sizes",
    type=OptionType(Parsed("sizes", "SIZE[..SIZE]", _sizes)),
    metavar="SIZE[..SIZE]",
    help="Only these message sizes: 1M, 1M..1G, 1M.., ..64K.",
)


# ---------------------------------------------------------------- ages: 90s, 10m, 2h, 7d

_AGE = lazy(r"([0-9]{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _age(text: str) -> timedelta:
    match = _AGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a valid age. Write 90s, 10m, 2h, 7d or 2w")
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


AGE = OptionType(Parsed("an age", "AGE", _age))


def written_age(age: timedelta) -> str:
    """Write an age in its largest whole unit, as kubectl does."""
    seconds = int(age.total_seconds())
    unit = next((unit for unit in "dhm" if seconds >= 2 * _SECONDS[unit]), "s")
    return f"{seconds // _SECONDS[unit]}{unit}"
