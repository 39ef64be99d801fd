"""The options that every benchmark of ``fabbench run`` has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fabbench.cli import options
from fabbench.errors import RequestError

if TYPE_CHECKING:
    from fabbench.config import Config
    from fabbench.plan import Work
    from fabbench.variants import Variant

_ARM_FLAGS = {"--efa": "--fabric=efa", "--no-efa": "--fabric=tcp", "--ab": "--fabric=ab"}


class RunCommand(click.Command):
    """A command whose arms come in the order in which they are written, whichever option names them.

    What stands behind ``--`` is for the benchmark.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the short forms of ``--fabric`` as what they stand for."""
        own = args.index("--") if "--" in args else len(args)
        words = [_ARM_FLAGS.get(word, word) for word in args[:own]]
        return super().parse_args(ctx, words + args[own:])


_OPTIONS = (
    options.config,
    *options.where,
    click.option(
        "--fabric",
        "fabrics",
        multiple=True,
        metavar="NAME",
        help="Add an arm on this fabric: efa, ib, roce, tcp, p2p, shm, or any libfabric provider. No "
        "fabric at all: the best one that is there.",
    ),
    click.option("--efa", is_flag=True, expose_value=False, help="The same as --fabric efa."),
    click.option("--no-efa", is_flag=True, expose_value=False, help="The same as --fabric tcp."),
    click.option(
        "--ab",
        is_flag=True,
        expose_value=False,
        help="Two arms: the best RDMA fabric that is there, then tcp.",
    ),
    click.option(
        "--variant",
        "variants",
        multiple=True,
        metavar="NAME=…",
        help="Add an arm, on each fabric, in which something else is used: NAME=/FOLDER[:/FOLDER…] for "
        "programs and libraries installed there, NAME=KEY=VALUE[,KEY=VALUE…] for path, image, interface, "
        "mpirun or a variable, NAME for one of fabbench.yaml, NAME= for everything as it is.",
    ),
    click.option(
        "--repeat",
        "repeats",
        type=click.IntRange(1, 999),
        metavar="N",
        help="Repeats of each arm. 3 with several arms, else 1.",
    ),
    click.option(
        "--env",
        "env",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a variable for the benchmark's processes, in every arm. Can be given several times.",
    ),
    click.option(
        "--keep-going",
        is_flag=True,
        help="Let an execution that is seen to be off its fabric go on to its end.",
    ),
    click.option(
        "--gate",
        "gates",
        multiple=True,
        metavar="GATE",
        help="What must hold for the first arm, such as latency@64:20us or bandwidth@1M>=3GB/s. Can be given "
        "several times.",
    ),
    click.option(
        "--baseline", metavar="RUN|FILE", help="What gates compare with: a run, RUN:ARM, or a log file."
    ),
    click.option("--metric", help="What the table compares. Chosen from the benchmark if not given."),
    options.form(options.COMPARED, "How to write the comparison."),
    options.store,
)


def shared_options(function: Callable[..., "Asked"]) -> Callable[..., "Asked"]:
    """Add the options that every benchmark has."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The shared options, as given."""

    config: "Config | None"
    fabrics: tuple[str, ...]
    variants: tuple[str, ...]
    repeats: int | None
    env: tuple[str, ...]
    keep_going: bool
    gates: tuple[str, ...]
    baseline: str | None
    metric: str | None
    form: str
    store: Path
    place: Mapping[str, Any]
    """What says where to run; see `fabbench.cli.options.where`."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Wanted":
        """Take the shared options out of a command's."""
        place = {name: given[name] for name in options.WHERE}
        return cls(place=place, **{name: given[name] for name in cls.__slots__ if name != "place"})


class Asked(NamedTuple):
    """What a benchmark's command was asked for."""

    wanted: Wanted
    benchmark: str
    work: "Work"
    given: Mapping[str, Any]
    """The benchmark's own options, for the record."""


def own(given: Mapping[str, Any]) -> dict[str, Any]:
    """Take a command's own options out of all that were given."""
    return {name: value for name, value in given.items() if name not in {*Wanted.__slots__, *options.WHERE}}


def variants_of(wanted: Wanted) -> "tuple[Variant, ...]":
    """Read what ``--variant`` says. Raises RequestError."""
    from fabbench.variants import read_variants

    return read_variants(wanted.variants, wanted.config.variants if wanted.config else {})


def environment(texts: tuple[str, ...]) -> dict[str, str]:
    """Read ``NAME=VALUE``; raises RequestError."""
    for text in texts:
        if not text.partition("=")[0].isidentifier() or "=" not in text:
            raise RequestError(f"--env {text} sets no variable.", hint="Write --env NAME=VALUE.")
    return dict(text.split("=", 1) for text in texts)
