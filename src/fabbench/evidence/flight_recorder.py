"""Dumps of PyTorch's flight recorder (TORCH_NCCL_DUMP_ON_TIMEOUT), a file per rank. Pure.

Pickles (`_dump_nccl_trace`, versions 2.0 to 2.10) and JSON (`_dump_nccl_trace_json`) have the same
fields; torch/csrc/distributed/c10d/FlightRecorderDetail.hpp writes them.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fabbench.evidence.hangs import Call, Group, Hangs, RankState, rank_numbers
from fabbench.evidence.known_errors import finding
from fabbench.model.errors import MachineError
from fabbench.model.log import FLIGHT_RECORDER, NCCL_DEBUG, Finding, MutableFacts, Record
from fabbench.model.patterns import lazy

_PICKLE = re.compile(rb"\x80[\x02-\x05]|\(dp?\d|\}q\x00")  # protocols 2 to 5, 0 and 1
_SIGN = re.compile(rb"pg_config|pg_status")
_SEARCHED = 4096
_RANK = lazy(r"(?<!\d)(\d{1,9})(?:\.(?:pkl|pickle|json))?$")
_NUMBER = lazy(r"\d{1,9}")
_PENDING = frozenset({"scheduled", "started"})


class Dump(NamedTuple):
    """What the recorder of one rank has."""

    rank: int  # -1: the name of its file has no number
    content: Mapping[str, Any]


def is_dump(head: bytes) -> bool:
    """Return whether a file begins like a dump: any pickle does, and JSON with fields of a dump."""
    if not head.lstrip().startswith(b"{"):
        return _PICKLE.match(head) is not None
    return _SIGN.search(head, 0, _SEARCHED) is not None


def read_dump(data: bytes, name: str) -> Dump:
    """Read a dump; its rank is the number at the end of its name. Raise MachineError."""
    from fabbench.evidence.plain_pickle import read_plain  # pickle loads slowly

    read = read_plain if _PICKLE.match(data) else json.loads
    try:
        content = read(data)
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, str(error)) from error
    entries = content.get("entries") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise _unreadable(name, "it has no list of entries")
    rank = _RANK.search(name)
    number = int(rank[1]) if rank else -1  # not known
    return Dump(number, content)


def _unreadable(name: str, why: str) -> MachineError:
    return MachineError(
        f"{name} is no readable dump of {FLIGHT_RECORDER}: {why}.",
        hint="Dump again; a dump has plain data and no objects.",
    )


def record_of(dumps: Sequence[Dump]) -> Record:
    """Return what the dumps of a job's ranks show. Raise MachineError for a damaged one."""
    hangs = Hangs(may_go_on=True)  # a healthy job can be dumped, too
    version = "unknown"
    try:
        for dump in dumps:
            _add_dump(hangs, dump)
            version = str(dump.content.get("comm_lib_version") or version)
        findings = [*hangs.findings(), *_ranks_without_dump(dumps)]
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        which = f"The dump of rank {dump.rank}, or one before it,"
        raise MachineError(f"{which} is damaged: {error}.") from error
    facts: MutableFacts = {"report": FLIGHT_RECORDER, "nccl": version}
    return Record(benchmark=None, case=NCCL_DEBUG, facts=facts, findings=findings)


def _ranks_without_dump(dumps: Sequence[Dump]) -> Iterator[Finding]:
    """Yield a finding if ranks of the job have no dump, unless only one dump was given."""
    members: set[int] = set()
    for dump in dumps:
        for group in dump.content.get("pg_config", {}).values():
            ranks = str(group["ranks"])
            members.update(map(int, _NUMBER.findall(ranks)))
    absent = members - {dump.rank for dump in dumps}
    if absent and len(dumps) > 1:
        line = f"{FLIGHT_RECORDER}: dumps of {len(dumps)} of {len(members)} ranks"
        who = rank_numbers(absent)
        yield finding("ranks-missing", line, report=f"{who}: there is no dump")


def _add_dump(hangs: Hangs, dump: Dump) -> None:
    """Add the state of one rank in each of its process groups.

    Of a batch, the entry `coalesced` below its sends and receives has their number and says how
    they are: their own entries stay as they were scheduled.
    """
    last: dict[str, Mapping[str, Any]] = {}  # number of a group → its last entry
    for entry in dump.content["entries"]:
        group_number, description = map(str, entry["process_group"])
        name = str(entry["profiling_name"]).rpartition(":")[2]  # `all_reduce` of `nccl:all_reduce`
        ends_batch = name == "coalesced" and last.get(group_number, {}).get("is_p2p")
        # Sends and receives are numbered apart from collectives, as a group of their own.
        is_peers = bool(entry.get("is_p2p") or ends_batch)
        group = Group(description or group_number, group_number, is_peers)
        state = hangs.groups.setdefault(group, {}).setdefault(dump.rank, RankState())
        number_field = "p2p_seq_id" if is_peers else "collective_seq_id"
        _add_call(state, entry, name, int(entry[number_field]))
        last[group_number] = entry
        if state.waits_for is not None:
            hangs.line = (
                hangs.line or f"{FLIGHT_RECORDER}: rank {dump.rank}, {entry['profiling_name']}"
            )


def _add_call(state: RankState, entry: Mapping[str, Any], name: str, number: int) -> None:
    """Add a collective that a rank has called: it waits for the first that is still pending.

    `number`: that of the call in the sequence of its group.
    """
    sizes = entry["input_sizes"]
    # Of the first input, by its dimensions
    elements = format(math.prod(sizes[0]), "d") if sizes else ""
    state.calls[number] = Call(name, elements)
    state.started = max(state.started or 0, number)
    # Of gloo's calls the state stays `scheduled`: only that they are retired shows their end.
    is_pending = entry["state"] in _PENDING and not entry.get("retired")
    if is_pending and state.waits_for is None:
        state.waits_for = number
    elif state.waits_for == number and not is_pending:  # a later entry says how a batch ended
        state.waits_for = None
