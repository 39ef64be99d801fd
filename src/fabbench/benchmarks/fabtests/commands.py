"""Names and arguments of the fabtests that measure, in a command line or above machine readable rows."""

import re

from fabbench.benchmarks.libfabric.commands import Asked, Syntax
from fabbench.markers import Marker

PROGRAMS = (
    r"fi_(?:(?:rdm|msg|dgram|rma|rc|ud|efa)_\w*?(?:pingpong|bw|rma|lat|atomic|tx_completion)\w*"
    r"|rdm_atomic|rma_\w+|multi_recv|unmap_mem|ubertest)"
)
"""A pattern of the programs' names, since 2014. Other fabtests check functions and measure nothing."""

_SYNTAX = Syntax(
    names=PROGRAMS,
    short="B:P:s:a:C:F:O:f:d:p:KD:i:HRe:M:I:QS:mc:t:w:lo:rvkj:W:UT:n:hxu:",
    long=(
        *("pin-core=", "timeout=", "debug-assert", "data-progress=", "control-progress=", "max-msg-size="),
        *("use-fi-more", "threading=", "no-rx-cq-data", "expect-error=", "sync-comp="),
    ),
    optional="bE",
)
_ARGUMENTS = re.compile(rf"(?:--- # )?\s*(?:\S*/)?(?:lt-)?(?P<program>{PROGRAMS})(?P<rest> .*)")
_ENDPOINT = re.compile(r"fi_(msg|rdm|dgram)_")


def read_command(text: str) -> Asked | None:
    """Read a command line that starts one of the programs; None for a line that merely names one."""
    return _SYNTAX.command(text)


def read_arguments(text: str) -> Asked | None:
    """Read the argument vector that stands above machine readable rows: ``fi_rdm_bw -m -S 64 :``.

    Until 2014-11 it was ``--- # fi_rdm_bw -m``.
    """
    match = _ARGUMENTS.fullmatch(text)
    if match is None or not (text.startswith("--- # ") or text.rstrip().endswith(" :")):
        return None
    return _SYNTAX.arguments(match["program"], match["rest"].rstrip().removesuffix(" :").split())


def of_step(step: Marker, side: str) -> Asked | None:
    """Say what fabbench started on one side of a step; None: the marker does not say which program."""
    program = step.facts.get("program")
    if not program:
        return None
    size, iterations = (step.facts.get(name, "") for name in ("size", "iterations"))
    return Asked(
        program=program,
        side=side,
        endpoint=step.facts.get("endpoint", ""),
        size=int(size) if size.isdecimal() else None,
        iterations=int(iterations) if iterations.isdecimal() else None,
    )


def endpoint(asked: Asked) -> str:
    """Name the endpoint type that a command uses: most programs have just one, and are named after it."""
    named = _ENDPOINT.match(asked.program)
    return asked.endpoint or (named[1] if named else "")


def transfers(program: str | None) -> tuple[int, int]:
    """Say how many transfers of each size one iteration has, at least and at most."""
    if program is None or program.endswith(("_mt", "ubertest")) or "_efa_" in program:
        return 1, 1 << 20
    return (2, 2) if "pingpong" in program else (1, 1)
