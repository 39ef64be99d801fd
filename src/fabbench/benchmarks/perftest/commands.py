"""Command lines of perftest's programs in a log: which program, which side, both directions or one."""

import re
from typing import NamedTuple

_PROGRAM = re.compile(
    r"(?:^|(?<=[\s/'\"]))(ib_(?:write|read|send|atomic)_(?:bw|lat)|raw_ethernet_(?:bw|lat))(?=[\s'\"]|$)"
)
_PROMPTS = ("$ ", "# ", "> ", "+ ", "% ", "Running: ")
_STOP = re.compile(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<(?=\s))|['\"]")
_UNWRAPPED = 60
"""Columns below which no terminal breaks a line."""

# Options with a value: getopt's string, and long_options[] (perftest_parameters.c).
_SHORT = frozenset("wypdimsntuSxcqIoMrQAlDfBTLEJjKkXW")
_LONG = tuple(
    """
    MGID atomic_type bind_source_ip burst_size congest_type connection cpu_id cq-mod cqe_poll
    cuda_mem_type dest_ip dest_mac dest_port dlid duration ethertype flow_label flows flows_burst force-
    link gid-index gpu_touch hop_limit ib-dev ib-port inline_size iters latency_gap limit_bw
    limit_msgrate local_ip local_mac local_port log_active_dci_streams log_dci_streams margin mmap mmap-
    offset mtu numa_node opencl_platform_id out_json_file output outs payload_file_path ph pin_cores
    pkey_index port post_list qp qp-timeout rate_limit rate_limit_type rate_units recv_post_list
    remote_ip remote_mac remote_port reply_every report-counters retry_count rx-depth size sl source_ip
    source_mac source_port tclass tos tph_mem tx-depth typical_pkt_size use_cuda use_cuda_bus_id use_hl
    use_ib_dm_dmabuf use_mlu use_musa use_musa_bus_id use_neuron use_opencl use_rocm vector vlan_pcp
    wait_destroy
    """.split()  # noqa: SIM905 - eighty quoted words say no more
)


class Asked(NamedTuple):
    """What a command line asks for."""

    program: str
    side: str
    """`client` with a server's address, else `server`."""
    both_directions: bool = False
    cycles: bool = False
    """Whether times are printed in CPU cycles (`-C`), under a header that says usec."""


def read_command(text: str) -> Asked | None:
    """Read a line that starts a program; None for a line that merely names it."""
    match = _PROGRAM.search(text)
    if match is None:
        return None
    before = text[: match.start()]
    words = _STOP.split(text[match.end() :], maxsplit=1)[0].split()
    folder = before.rsplit(maxsplit=1)[-1] if before and not before[-1].isspace() else ""
    prompted = any(sign in f"{before} " for sign in _PROMPTS)
    if not prompted and (before.removesuffix(folder).strip() or not any(word[:1] == "-" for word in words)):
        return None
    if any(word.startswith(("[", "<")) for word in words):
        return None
    operands, flags = _arguments(words)
    if len(operands) > 1:
        return None
    return Asked(
        program=match[1],
        side="client" if operands else "server",
        both_directions=bool({"b", "bidirectional"} & flags),
        cycles=bool({"C", "report-cycles"} & flags),
    )


def unwrapped(command: str, text: str) -> str:
    """Join a command line with the line below it, if a terminal broke it there; empty: it did not."""
    joined = command + text
    if len(command) < _UNWRAPPED or not text.strip():
        return ""
    asked = read_command(joined)
    # Only an address or options can be what was cut off.
    last = joined.split()[-1]
    return joined if asked is not None and re.fullmatch(r"-.*|.*[.:\d].*", last) else ""


def _arguments(words: list[str]) -> tuple[list[str], set[str]]:
    """Split into operands and the names of the options without a value."""
    operands: list[str] = []
    flags: set[str] = set()
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            name = word[2:]
            if name != "out_json" and name and any(known.startswith(name) for known in _LONG):
                next(rest, None)
            else:
                flags.add(name.partition("=")[0])
        elif word.startswith("-") and len(word) > 1:
            for at, letter in enumerate(word[1:], start=1):
                if letter in _SHORT:
                    if at == len(word) - 1:
                        next(rest, None)
                    break
                flags.add(letter)
        else:
            operands.append(word)
    return operands, flags
