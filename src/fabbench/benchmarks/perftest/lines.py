"""The lines of perftest.

Headers and rows of its tables, what stands around them, and its JSON as lines. Pure.

The wording is from the source (perftest_parameters.c; perftest_resources.h). It prints each column
with a fixed number of decimals (perftest_parameters.h, RESULT_FMT and REPORT_FMT since 2013): a
number with fewer is cut off, and two numbers that lost the tab between them can be separated.
Bandwidth is size times message rate, also for sums of two directions.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache

import msgspec

from fabbench.benchmarks.commands import CommandLine, read_command_line
from fabbench.benchmarks.consistency import note, printed, product, warning
from fabbench.benchmarks.tables import (
    COUNT,
    SIZE,
    UNKNOWN,
    Column,
    Layout,
    Row,
    is_ascending,
    read_columns,
)
from fabbench.model import records
from fabbench.model.log import Point
from fabbench.model.patterns import lazy

UNITS: Mapping[str, float] = {"MiB/sec": float(1 << 20), "Gb/sec": 125e6}
"""Unit → bytes per second: MB (until 24.04) and MiB are both 2^20 (`format_factor`)."""

# No leading zero and a fixed end, so that joined numbers can be split in only one way.
_TWO, _SIX = (rf"(?:0|[1-9]\d{{0,17}})\.\d{{{decimals}}}|-?nan|-?inf" for decimals in (2, 6))
NEVER = Column(cell="(?!)")  # no row has such a cell
_BANDWIDTH, _RATE = Column("bandwidth", cell=_TWO), Column("message_rate", 1e6, cell=_SIX)
_TRIPS = "way=round-trip"
_TIME = Column("latency", cell=_TWO, exponent=-6)
_ITERATIONS, CPU, SL = (
    Column("iterations", cell=COUNT),
    Column("cpu_util", cell=_TWO),
    Column("sl", cell=r"\d{1,3}"),
)
_COLUMNS: Mapping[str, Column] = {
    "#bytes": SIZE,
    "#sl": SL,
    "#?iterations": _ITERATIONS,
    **{
        rf"bw{name}\[{unit}\]": _BANDWIDTH._replace(stat=stat, factor=factor)
        for unit, factor in (("mi?b/sec", UNITS["MiB/sec"]), ("gb/s(?:ec)?", UNITS["Gb/sec"]))
        for name, stat in (("average", ""), ("(peak)", "{}"), (r"port(\d)", "name=port {}"))
    },
    r"msgrate\[mpps\]": _RATE,
    r"msgrateport(\d)\[mpps\]": _RATE._replace(stat="name=port {}"),
    r"cpu_util\[%%?\]": CPU,
    r"t_(min|max|stdev)\[usec\]": _TIME._replace(stat="{}"),
    r"t_typical\[usec\]": _TIME._replace(stat="median"),
    r"t_avg\[usec\]": _TIME,
    r"t_\w+\[cycles\]|99(?:\.9)?%percentile\[cycles\]": Column("cycles", cell=_TWO),
    r"(99(?:\.9)?)%percentile\[usec\]": _TIME._replace(stat="p{}"),
    "tpsaverage": Column(
        "message_rate", stat=_TRIPS, cell=_TWO
    ),  # round trips, whatever the latency beside it
}
_GAP = lazy(r"(?<=\])\s*|\s{2,}|\t|(?<=#bytes)\s+|(?<=#sl)\s+|(?<=iterations)\s+")
MARKS = lazy(
    r"^#(?=\s)|\*\*|`|(?<!\s)\s++(?:<[-=]|←).*"
)  # of documents: comment, bold, code, and arrow

_PEAK, _AVERAGE = Column("bandwidth", 125e6, "peak"), Column("bandwidth", 125e6)
SUMMARIES: Sequence[Layout] = (
    (
        Column(cell="Mean BW peak:"),
        _PEAK,
        Column(cell="Gb/s, Mean BW avg:"),
        _AVERAGE,
        Column(cell="Gb/s"),
    ),
    (
        Column(cell="Total BW:"),
        Column("bandwidth", 1e9, "direction=bi"),
        Column(cell="GB/s", joined=True),
    ),
    # the only lines of scripts, of ib_write_bw and fi_rma_bw (modal-labs/multinode-training-guide,
    # health-checks)
)


@lru_cache(maxsize=256)
def read_header(text: str, *, cycles: bool) -> Sequence[Layout]:
    """Return the layouts of the rows below a header; empty for any other line.

    `cycles`: they are not usec (-C).
    """
    layout = [*read_columns([name for name in _GAP.split(text) if name.strip()], _COLUMNS)]
    if layout[:1] != [SIZE] or _ITERATIONS not in layout[1:3]:
        return ()
    first = layout.index(_ITERATIONS) + 1
    for at, column in enumerate(layout[first:], first):
        if column is UNKNOWN:
            return ((*layout[:first], NEVER),)  # it is cut off: no row below it can be read
        metric = "cycles" if cycles and column.metric == "latency" else column.metric
        layout[at] = column._replace(metric=metric, joined=at > first)
    # Gb/sec below 0.1 have six decimals.
    six = tuple(
        each._replace(cell=_SIX) if each.factor == UNITS["Gb/sec"] else each for each in layout
    )
    return tuple(dict.fromkeys((tuple(layout), six)))


def _ways(row: Row) -> Sequence[str]:
    """Return what a latency may be.

    Its product with the rate of round trips shows it, where that is printed.
    """
    latency, rate, stated = (
        row.main("latency"),
        row.figures.get(_TRIPS, {}).get("message_rate"),
        row.labels.get("way"),
    )
    ways = [stated] if stated else ["one-way", "round-trip"]
    if latency is None or rate is None or not latency.value or not rate.value:
        return ways
    low, high = product(latency, rate)
    trips = {"one-way": 0.5, "round-trip": 1.0}
    return [way for way in ways if 0.998 * low <= trips[way] <= 1.002 * high < 4 * low]


def fits(row: Row) -> bool:
    """Return whether the figures of a row can be those of one measurement."""
    bandwidth, rate, peak = row.main("bandwidth"), row.main("message_rate"), row.figures.get("peak")
    if peak and bandwidth and peak["bandwidth"].value and peak["bandwidth"].high < bandwidth.low:
        return False
    if (
        row.size
        and bandwidth
        and rate
        and not bandwidth.overlaps(rate.low * row.size, rate.high * row.size)
    ):
        return False
    return bool(_ways(row)) and is_ascending(row)


def points(row: Row) -> list[Point]:
    """Return the points of a row: one for all figures with the same labels.

    perftest prints zero for what it did not measure (`BW peak`), or for what is below the last
    decimal.
    """
    out, ways, level = [], _ways(row), row.cell("sl")
    for stat, figures in (
        row.figures if not row.cell("cycles") else {"": {}, **row.figures}
    ).items():
        measured = {
            metric: each.value for metric, each in figures.items() if 0 < each.value < math.inf
        }
        if measured or not stat:
            name, _, value = stat.rpartition("=")
            own = {"name": f"sl {level}"} if level else {}
            own |= {"way": ways[0]} if "latency" in figures and len(ways) == 1 else {}
            own |= {name or "stat": value} if stat else {}
            out.append(
                Point(row.size, {**row.labels, **own}, tuple(measured), tuple(measured.values()))
            )
    return out


NO_SIZE = note(
    "size-unstated",
    "The size is not stated: it is given as 0.",
    "Keep perftest's own table in the log.",
)
CPU_FREQUENCY = note(
    "cpu-frequency",
    "CPU frequencies differ: times may be off.",
    "Set their governor to performance.",
)
AMBIGUOUS_WAY = note(
    "way-ambiguous", "Times may be of half a round trip or all of it.", "Keep the title in the log."
)
AMBIGUOUS_UNIT = warning(
    "unit-ambiguous", "perftest's JSON states no unit of bandwidth.", "Keep the printed table."
)
CYCLES = warning(
    "unit-cycles",
    "Times are left out: they are in CPU cycles of unknown length.",
    "Run without -C.",
)
BOTH_SIDES = note(
    "both-sides",
    "Client and server printed their rows into one text: each measurement is there twice.",
)

# --out_json (since 2021) has one test, one size, and no unit. It is read by its keys: with QoS,
# --output=bandwidth or until 2023 (no quotes) it is not valid JSON, and a truncated file can end
# anywhere.
_WHOLE = lazy(r'(?s)(.*?)\bresults"?\s*:\s*\{([^}]*)\}.*')
_WORD = r'"([^"]*)"|(-?\d+(?:\.\d*)?|[A-Z]\w*)(?=\s*[,}\s]|$)'
_PAIR = lazy(rf'"?([A-Za-z_][\w. *]{{0,40}})"?\s{{0,9}}:\s{{0,9}}(?:{_WORD})', re.ASCII)
_JSON_COLUMNS: Mapping[str, str] = {
    "MsgSize": "#bytes",
    "sl": "#sl",
    "n_iterations": "#iterations",
    "BW_peak": "BW peak[{}]",
    "BW_average": "BW average[{}]",
    "MsgRate": "MsgRate[Mpps]",
    **{key: f"{key}[usec]" for key in ("t_min", "t_max", "t_typical", "t_avg", "t_stdev")},
    **{f"percentile_{each}": f"{each}% percentile[usec]" for each in ("99", "99.9")},
    "tps_average": "tps average",
}  # key in `results` → column of the table


def from_json(json: str) -> Iterator[str]:
    """Yield the lines of text that say the same as a whole file; none for one that is not whole."""
    if (match := _WHOLE.fullmatch(json)) is None:
        return
    info, results = (
        {key.strip(): word or number for key, word, number in _PAIR.findall(each)}
        for each in match.groups()
    )
    yield info.pop("test", "")
    yield from (f" {key.replace('_', ' ')} : {value}" for key, value in info.items() if value)
    average = results.get("BW_average", "")
    # Six decimals are printed for Gb/s only (REPORT_FMT_EXT_JSON).
    six = len(average.partition(".")[2]) == 6
    unit = (
        "Gb/sec" if six else _unit(average, results.get("MsgRate", ""), results.get("MsgSize", ""))
    )
    if average or not results.keys().isdisjoint(("bw_avg", "msgRate_avg")):
        yield f" JSON unit : {unit or 'ambiguous'}"
    if "MsgSize" not in results:  # --output
        yield " JSON size : unknown"
        return
    columns = dict[str, str]()
    for key, name in _JSON_COLUMNS.items():
        if key in results and (unit or not key.startswith("BW")):
            # JSON leaves zeros out.
            whole, _, decimals = results[key].partition(".")
            wanted = 6 if key == "MsgRate" or (six and key.startswith("BW")) else 2
            columns[name.format(unit)] = (
                whole if name[0] == "#" else f"{whole}.{decimals.ljust(wanted, '0')}"
            )
    yield from ("-" * 20, f" {'  '.join(columns)}", f" {'  '.join(columns.values())}", "-" * 20)


def _unit(average: str, rate: str, size: str) -> str:
    """Return the only unit in which a bandwidth is size times message rate.

    Empty: none, or not known.
    """
    try:
        bandwidth, (_, low, high) = printed(average), printed(rate).times(1e6 * int(size))
    except ValueError:
        return ""
    units = [unit for unit, factor in UNITS.items() if bandwidth.times(factor).overlaps(low, high)]
    return (
        units[0]
        if len(units) == 1 and bandwidth.high < 2 * bandwidth.low and high < 2 * low
        else ""
    )


# Kind of line → when one process prints it: a line of an earlier stage begins another run. Others:
# at any time.
_IN_ORDER = ("command banner json", "title", "setup address waiting", "header sum")
STAGES = {kind: stage for stage, kinds in enumerate(_IN_ORDER) for kind in kinds.split()}

_PROGRAMS = r"ib_(?:write|read|send|atomic)_(?:bw|lat)"


class ErrorLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line by which perftest reports an error: a record of errors.toml."""

    pattern: str
    """The whole line matches it."""
    example: str
    counterexample: str
    alone: bool = False
    """Whether nothing else prints it, so that it may begin an execution."""


@cache
def error_lines() -> tuple[ErrorLine, ...]:
    """Return the records of errors.toml."""
    return records.load("fabbench.benchmarks.perftest", "errors.toml", ErrorLine)


def _error_pattern(*, alone: bool) -> str:
    return "|".join(each.pattern for each in error_lines() if each.alone is alone)


_ANYWHERE = (
    r"(?P<title>(?P<verb>Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm)?[ "
    r"_]+(?:(?:FETCH_AND_ADD|CMP_AND_SWAP)[ _]+)?"
    r"(?P<both>Bidirectional[ _]+)?(?:Post[ _]List[ _]+)?(?P<figure>BW|Latency)[ "
    r"_]+(?:forwarding[ _]+)?"
    r"(?:Multicast[ _]+)?Test)"
    r"|(?P<address>(?P<end>local|remote) address: .*?(?P<pair>QPN (?:0x)?[0-9a-f]+ PSN "
    r"(?:0x)?[0-9a-f]+).*)"
    r"|(?P<banner>\* Waiting for client to connect\.\.\. \*)|(?P<waiting>Waiting for client "
    r"rdma_cm QP to connect)"
    r"|(?P<json>.*\btest_info\"?\s*:.*)"
    r"|(?P<sum>Mean BW peak: [0-9.]+ Gb/s, Mean BW avg: [0-9.]+ Gb/s|Total BW: [0-9.]+ *GB/s)"
    r"|(?P<failure>Failed status[- ](?:(?:.*) \()?(?P<status>\d{1,9})\)?: wr_id -?\d+ syndrom "
    r"(?P<syndrome>0x[0-9a-f]+)"
    rf"|{_error_pattern(alone=True)})"
)  # lines that nothing else prints
# Too common to begin an execution.
_INSIDE = (
    r"|(?P<rule>-{20,})|(?P<results>(?P<of>Local|Remote) results:)"
    r"|(?P<cpu>Conflicting CPU frequency values detected: .*)"
    r"|(?:WARNING|Warning): (?P<warning>.*\S)"
    r"|(?P<wrong>.*VALIDATION: FAILED.*? - (?P<errors>\d+) error\(s\).*)"
    rf"|(?P<error>{_error_pattern(alone=False)})"
)
ANYWHERE, INSIDE = lazy(rf"\s*+(?:{_ANYWHERE})\s*"), lazy(rf"\s*+(?:{_ANYWHERE}{_INSIDE})\s*")
"""A line other than a row, outside and inside of an execution.

Its kind is the name of the last group.
"""

# Nothing else prints these in this form.
DISTINCT_SETUP = lazy(
    r"(?:Device {9}|Number of qps {3}|Transport type |Connection type |Link type {7}|Mtu {13}"
    r"|CQ Moderation {3}|rdma_cm QPs\s+|Data ex\. method |ibv_wr\* API {5}): "
)
SETUP = lazy(
    r"(Device|Number of qps|(?:Transport|Connection|Link) type|Mtu|GID index|[TR]X depth|JSON "
    r"\w+|Using SRQ|Dual-port"
    r"|PCIe relax order|ibv_wr\* API|CQ Moderation|rdma_cm QPs|Data ex\. method|Max inline "
    r"data)\s*: ?(\S+?)"
    r"(?=\s|$|Device +:|Transport type|Using |Lock-free)"
)
FACTS: Mapping[str, str] = {
    "Device": "device",
    "Connection type": "transport",
    "Link type": "link",
    "Number of qps": "qps",
    "Mtu": "mtu",
    "GID index": "gid_index",
    "JSON unit": "unit",
    "JSON size": "size",
}  # name in the set-up text → fact

STATED = lazy(
    r"\s*(?:Version: (?P<perftest>\d+\.\d\S*)"
    r"|(?:creating |Using |Use )?(?P<gpu>(?i:cuda|rocm|musa)) (?:Ctx|Device with ID: .*|memory "
    r"+: ON|device : \d+))\s*"
)  # lines that state the fact of a group's name
MEANINGS: Mapping[str, str] = {
    "4": "local protection error: the memory registration does not cover the buffer",
    "5": "flushed: the queue pair was already in error, or the other side has exited",
    "9": "remote invalid request: the other side refuses the operation or its size",
    "10": "remote access error: the other side's memory or key does not allow it",
    "12": (
        "transport retry counter exceeded: the other side does not answer (wrong GID, peer "
        "down, loss)"
    ),
    "13": "receiver-not-ready retry counter exceeded: the other side posted no receive",
}  # ibv_wc_status → meaning

_PROGRAM = lazy(
    rf"(?:^|(?<=[\s/'\"#$]))({_PROGRAMS}|raw_ethernet_(?:bw|lat|burst_lat|fs_rate))(?=[\s'\"]|$)"
)
_STOP = lazy(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<(?=\s))|['\"]")
# Short options without a value, the first that takes one, and its value (getopt's string in
# perftest_parameters.c).
_SHORT = lazy(r"-([^wypdimsntuSxcqIoMrQAlDfBTLEJjKkXW]*)(.?)(.*)")
_FLAGS = lazy(
    r"all|bidirectional|(?:comm_)?rdma_cm|CPU-freq|cpu_util|data_validation|dont_xchg_versions|dualport|events|ipv6|no_lock"
    r"|no_peak|odp|out_json|perform_warm_up|report(?:-both|-cycles|-histogram|-unsorted|_gbits|_per_port)"
    r"|run_infinitely|srq|use_(?:cuda|rocm)_dmabuf|use_old_post_send|use-srq"
)  # long options without a value


def read_command(text: str) -> tuple[str, str, set[str]] | None:
    """Return the program that a line starts, its side and its flags.

    None for a line that only names it.
    """
    program, words = read_command_line(text, _PROGRAM, _STOP) or CommandLine("", [])
    operands, flags, rest = 0, set[str](), iter(words)
    for word in rest:
        if word.startswith("--"):
            flags.add(word[2:])
            if "=" not in word and not _FLAGS.fullmatch(word[2:]):
                next(rest, None)
        elif len(word) > 1 and (match := _SHORT.fullmatch(word)) is not None:
            flags.update(match[1])
            if match[2] and not match[3]:
                next(rest, None)
        else:
            operands += 1
    return (
        (program, "client" if operands else "server", flags) if program and operands < 2 else None
    )
