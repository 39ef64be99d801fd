"""Channel lines that are skipped in a block of text leave what is read of it, line by line, as it is."""

from hypothesis import example, given
from hypothesis import strategies as st

from fabbench.logs.debug_text import ChannelLines
from fabbench.logs.parser import LogParser, Result, logs
from tests.performance.logs import tables_log

ORIGINS = ("n1:10:20 [0]", "n1:11:21 [1]", "n2:10:20 [0]", "n2:12:22 [0] via ")
MESSAGES = (
    *(f"Channel {number:02d}/0 : 0[0] -> 1[1] [send] via NET/Libfabric/{number}/GDRDMA" for number in range(3)),
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "Channel 00 :    0[0] -> 1[1] via NET/Socket/0",
    "Channel 01/0 : 0[0] -> 1[1] via  via NET/IB/1",
    "Channel ",
    "Channel via NET/IB/0",
    "Channel 02/02 : 0 1 2 3",
    "Using network Libfabric",
    "AllReduce: 8 Bytes -> Algo RING",
)
TABLE = tuple("".join(tables_log(1)).splitlines())
PLAIN = tuple(line for line in TABLE if " NCCL INFO " not in line)
DEBUG = tuple(f"{origin} NCCL INFO {message}" for origin in ORIGINS for message in MESSAGES)

debug_lines = st.sampled_from((*TABLE[24:60], *DEBUG))
torn_lines = st.tuples(st.sampled_from((*PLAIN, *DEBUG)), debug_lines, st.integers(0, 120)).map(
    lambda drawn: f"{drawn[0][: drawn[2]]}{drawn[1]}\n{drawn[0][drawn[2] :]}"
)
ends_of_lines = st.tuples(debug_lines, st.integers(-60, 0)).map(lambda drawn: drawn[0][: drawn[1] or None])
like_channels = st.sampled_from([f"it goes {message[8:]}" for message in MESSAGES[:5]])
glued_lines = st.lists(debug_lines, min_size=2, max_size=3).map("".join)
noise = st.lists(
    st.one_of(
        st.sampled_from(DEBUG[:4]), debug_lines, st.sampled_from(PLAIN), like_channels, torn_lines,
        ends_of_lines, glued_lines,
    ),
    max_size=12,
)  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> list[str]:
    """Draw the lines of one or two tables with debug lines among them, and sometimes within one."""
    lines = list(DEBUG[: draw(st.integers(0, len(DEBUG)))])
    again = st.just(draw(st.one_of(noise, st.lists(debug_lines, max_size=5))))  # behind several rows
    for _ in range(draw(st.integers(1, 2))):
        for line in PLAIN[: draw(st.integers(20, len(PLAIN)))]:
            lines += [line, *draw(st.one_of(noise, again, again))] if draw(st.integers(0, 3)) == 0 else [line]
        lines += PLAIN[-3:]
    return "\n".join(lines).split("\n")


def by_line(lines: list[str]) -> list[Result]:
    parser = LogParser("x", live=False)
    return [*logs([result for line in lines for result in parser.feed(line)]), *logs(parser.close())]


def in_blocks(blocks: list[list[str]]) -> list[Result]:
    parser = LogParser("x", live=False)
    read = [result for lines in blocks for result in parser.feed_text("\n".join(lines))]
    return [*logs(read), *logs(parser.close())]


@given(texts(), st.integers(1, 200))
def test_what_is_read_in_blocks_is_what_is_read_line_by_line(lines: list[str], cut: int) -> None:
    expected = by_line(lines)
    assert in_blocks([lines]) == expected
    assert in_blocks([part for part in (lines[:cut], lines[cut:]) if part]) == expected


OWN = "n1:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"


@given(texts())
@example([OWN, OWN, OWN, "it only ends so via P2P/CUMEM", OWN, OWN])
@example(["  8  2  float", f"n1:11:21 [1] NCCL INFO {MESSAGES[0]}"] * 5)  # of an unknown process
def test_every_line_is_given_or_is_a_channel_line_of_a_known_ending(lines: list[str]) -> None:
    channels = ChannelLines({"n1:10:20 [0]", "n2:10:20 [0]"})
    channels.endings = {" via NET/Libfabric/0/GDRDMA", " via P2P/CUMEM"}
    given_lines = list(channels.others("\n".join(lines)))
    rest = iter(given_lines)
    wanted = next(rest, None)
    skipped = []
    for line in lines:
        if line == wanted:
            wanted = next(rest, None)
        else:
            skipped.append(line)
    assert wanted is None
    assert len(skipped) == channels.skipped
    for line in skipped:
        origin, _, message = line.partition(" NCCL INFO Channel ")
        assert origin in {"n1:10:20 [0]", "n2:10:20 [0]"}
        assert message.endswith((" via NET/Libfabric/0/GDRDMA", " via P2P/CUMEM"))


def test_nearly_all_channel_lines_of_known_processes_are_skipped() -> None:
    lines = [line for line in "".join(tables_log(4)).splitlines() if " NCCL INFO " in line]
    channels = ChannelLines({line.partition(" NCCL INFO ")[0] for line in lines})
    channels.endings = {line[line.rfind(" via ") :] for line in lines}
    given_lines = list(channels.others("\n".join(lines)))
    assert len(lines) == 4 * 320
    assert channels.skipped + len(given_lines) == len(lines)
    assert len(given_lines) < len(lines) // 8


def test_lines_that_stand_behind_one_row_after_another_are_skipped_once_all_their_endings_are_known() -> None:
    run = [f"{ORIGINS[0]} NCCL INFO {MESSAGES[0]}", f"{ORIGINS[1]} NCCL INFO {MESSAGES[1]}"]
    rows = [f"  {size}  {size // 4}  float" for size in (8, 16, 32, 64)]
    lines = [line for row in rows for line in (row, *run)]
    channels = ChannelLines(set(ORIGINS))
    channels.endings = {" via NET/Libfabric/2/GDRDMA"}
    assert list(channels.others("\n".join(lines[:6]))) == lines[:6]
    channels.endings = {" via NET/Libfabric/0/GDRDMA"}
    assert run[1] in list(channels.others("\n".join(lines[:6])))
    channels.skipped, channels.endings = 0, {" via NET/Libfabric/0/GDRDMA", " via NET/Libfabric/1/GDRDMA"}
    assert list(channels.others("\n".join(["#", *lines[6:]]))) == ["#", lines[6], lines[9]]
    assert channels.skipped == 4
