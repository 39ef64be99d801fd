"""What stands before a benchmark's lines is learned from the lines that only a benchmark prints."""

import html
import io
import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.log import Log, Outcome
from fabbench.runs.parse_file import parse_stream
from fabbench.testing import read
from tests.support.corpus import CORPUS
from tests.support.nccl_text import nccl_text
from tests.support.paths import LOGS
from tests.support.prefix_forms import FORMS, NUMBERED, behind
from tests.support.tiers import sampled

SAMPLES = {
    "perftest": "layout-latency",
    "fabtests": "layout-1-fi_rdm_bw-now",
    "osu": "every-kind-of-table-6",
    "torch": "the-usual-table",
    "nvshmem": "layout-collective_3_3",
    "nccl": "release-1.0-all_reduce",
}
LEARNED = ("pdsh", "PyTorch", "flux --label-io, jsrun, srun -l", "ts")
"""Forms of which nothing is known before the first line that only a benchmark prints."""
SMALL = (LOGS / "nccl/opt-c0.txt", LOGS / "fi_pingpong/tcp-rdm.client.txt")
OTHERS = (
    *(CORPUS / f"{benchmark}/{name}.txt" for benchmark, name in SAMPLES.items()),
    *sorted((LOGS / "nvshmem").glob("*.txt")),
    LOGS / "runs/torch-tcp.txt",
    *(
        LOGS / f"nccl/{name}.txt"
        for name in ("x-net-socket", "allreduce-mpi-nvlink", "alltoall-mpi", "split")
    ),
    *(
        LOGS / f"nccl/{name}.txt"
        for name in ("opt-I", "opt-dall", "x-ofi-efa-missing", "x-ofi-tcp")
    ),
    LOGS / "published/alltoall-3.5.21.txt",
    LOGS / "runs/nccl-shm.txt",
    CORPUS / "imb/collectives.txt",
)
COPIES: dict[str, Callable[[str], str]] = {
    "page": lambda text: f"<html><body><pre>\n{html.escape(text)}</pre>",
    "lines of HTML": lambda text: html.escape(text).replace(" ", "&nbsp;").replace("\n", "<br>\n"),
    "blanks that do not break": lambda text: text.replace(" ", "\xa0"),
    "wide blanks and signs without a width": lambda text: text.replace("  ", "\u3000").replace(
        "\n", "\u200b\n"
    ),
    "byte order mark": lambda text: f"\ufeff{text}",
    "progress bar": lambda text: f"  0%|  | 0/2\r 50%|# | 1/2\r{text}".replace("\n", "\r\r\n"),
    "zeros in place of lost data, in a ticket": lambda text: (
        "\0" * 600 + f"{{code:java}}{text}{{code}}"
    ),
    "collapsed blanks": lambda text: re.sub(" +", " ", text),
    "cat -v": lambda text: re.sub(r"(\d+\.\d+)", r"^[[1m\1^[[0m", text),
    "colors without ESC": lambda text: re.sub("(?m)^(.*)$", r"[36m(task pid=1)[0m \1", text),
}
ROWS = [(1 << power, 0.5 * power) for power in range(10, 20)]
LINES = nccl_text(ROWS).rstrip("\n").split("\n")


def parse(text: str) -> list[Log]:
    return [log for _, log in parse_stream(io.BytesIO(text.encode()), "x")]


def contents(logs: Iterable[Log]) -> list[object]:
    """What logs tell, but for the ranks that prefixes add."""
    return [
        (
            log.benchmark,
            log.case,
            log.outcome,
            dict(log.facts),
            [finding.code for finding in log.findings],
            [text for _, text in log.damaged],
            sorted(
                (
                    size,
                    sorted((name, label) for name, label in labels.items() if name != "rank"),
                    *measured,
                )
                for size, labels, *measured in log.points
            ),
        )
        for log in logs
    ]


@cache
def whole_contents(path: Path) -> list[object]:
    """What the logs of a file tell, without a prefix."""
    return contents(parse(path.read_text().rstrip("\n")))


def check(form: str, path: Path) -> None:
    lines = path.read_text().rstrip("\n").split("\n")
    logs = parse(behind(form, lines))
    assert contents(logs) == whole_contents(path)
    assert all(log.points for log in logs)


@pytest.mark.parametrize("form", sampled([*FORMS], every=3))
def test_a_log_reads_the_same_behind_every_prefix(form: str) -> None:
    for path in SMALL:
        check(form, path)


@pytest.mark.parametrize(
    "form",
    [
        *LEARNED,
        *(pytest.param(form, marks=pytest.mark.slow) for form in FORMS if form not in LEARNED),
    ],
)
def test_logs_of_every_benchmark_read_the_same_behind_a_prefix(form: str) -> None:
    for path in OTHERS:
        check(form, path)


@pytest.mark.parametrize("copy", sampled([*COPIES], every=3))
def test_what_pages_and_editors_make_of_a_log_is_undone(copy: str) -> None:
    for path in (*SMALL, *OTHERS):
        text = path.read_text()
        assert contents(parse(COPIES[copy](text))) == whole_contents(path), path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["release-1.0-all_reduce", "release-2.19.6-all_reduce"])
def test_any_two_tags_of_launchers_may_be_stacked(name: str) -> None:
    lines = (CORPUS / f"nccl/{name}.txt").read_text().rstrip("\n").split("\n")
    tags = [
        form
        for form in FORMS
        if form.startswith(("Open MPI", "SkyPilot", "Ray", "Modal", "kubectl", "quote"))
    ]
    for outer, inner in product(tags, tags):
        logs = parse(behind(outer, behind(inner, lines).rstrip("\n").split("\n")))
        assert contents(logs) == contents(parse("\n".join(lines))), (outer, inner)


@pytest.mark.parametrize("form", sampled([*FORMS], every=3))
def test_lines_without_the_prefix_stand_between_those_with_it(form: str) -> None:
    """An sbatch file echoes commands, and srun reports errors, without the label of a rank."""
    echoes = [f"+ export NCCL_CROSS_NIC={number}" for number in range(40)]
    text = "\n".join((*echoes, behind(form, LINES), *echoes))
    (log,) = parse(text)
    assert contents([log]) == contents(parse("\n".join(LINES)))


@pytest.mark.parametrize("form", sampled([*FORMS], every=3))
def test_rows_behind_a_prefix_are_known_by_themselves_or_by_their_footer(form: str) -> None:
    """An excerpt may have neither the banner nor the header."""
    rows = [line for line in LINES if " float " in line or line.startswith("# Out")]
    (log,) = parse(behind(form, rows))
    assert len(log.points) == 2 * len(ROWS)


def test_a_prefix_is_learned_behind_what_is_read_at_first() -> None:
    noise = "Loading a checkpoint, shard 17 of 99\n" * 8_000
    (log,) = parse(noise + behind("pdsh", LINES))
    assert (log.outcome, len(log.points)) == ("ok", 2 * len(ROWS))


def test_wrong_data_behind_a_label_are_corrupt_whatever_the_launcher_says() -> None:
    lines = nccl_text(ROWS, wrong=2528).rstrip("\n").split("\n")
    error = "srun: error: nid006512: tasks 24-27: Exited with exit code 1"
    (log,) = parse(
        "\n".join(("+ module load nccl",) * 20) + "\n" + behind("srun -l, padded", lines) + error
    )
    assert log.outcome == "corrupt"
    assert len(log.points) == 2 * len(ROWS)


@pytest.mark.parametrize("form", NUMBERED)
def test_numbers_of_lines_are_left_out_if_every_line_has_the_next(form: str) -> None:
    text = behind(form, LINES)
    assert contents(parse(text)) == contents(parse("\n".join(LINES)))
    lines = text.split("\n")
    assert parse("\n".join(lines[:3] + lines[4:])) == []  # a number before a row may be its size


def test_runs_of_several_hosts_that_print_in_turn_are_told_apart_by_the_hosts_names() -> None:
    other = nccl_text(ROWS, case="all_gather").rstrip("\n").split("\n")
    text = "".join(
        f"{one}{two}"
        for one, two in zip(
            behind("pdsh", LINES).splitlines(keepends=True),
            (f"gpu-node-02: {line}\n" for line in other),
            strict=True,
        )
    )
    assert sorted((log.case, log.outcome, len(log.points)) for log in parse(text)) == [
        ("all_gather", "ok", 2 * len(ROWS)),
        ("all_reduce", "ok", 2 * len(ROWS)),
    ]


def test_what_other_hosts_of_a_run_say_belongs_to_it() -> None:
    debug = (
        "gpu-node-02: node1:108:8 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/Socket/0"
    )
    choice = "gpu-node-01: node0:100:8 [0] NCCL INFO Using network Socket"
    (log,) = parse(behind("pdsh", LINES[:3]) + f"{choice}\n{debug}\n" + behind("pdsh", LINES[3:]))
    assert (log.outcome, log.facts["transport"]) == ("ok", "socket")


def test_labeled_and_unlabeled_runs_of_one_page_are_runs_of_their_own() -> None:
    plain = "\n".join(LINES)
    labeled = behind("srun -l, padded", LINES)
    for page in (f"{plain}\n{labeled}{labeled}", f"{labeled}{labeled}{plain}\n"):
        assert [(log.outcome, len(log.points)) for log in parse(page)] == [
            ("ok", 2 * len(ROWS))
        ] * 3


def test_an_entry_of_a_log_that_holds_the_whole_output_is_read_line_by_line() -> None:
    text = "\n".join(LINES).replace("\n", "\\n")
    (log,) = parse(f'{{"level": "info"}}\n{{"level": "fatal", "output": "{text}"}}\n')
    assert contents([log]) == contents(parse("\n".join(LINES)))


@pytest.mark.parametrize("path", OTHERS)
def test_ansible_says_a_programs_output_twice_and_it_is_read_once(path: Path) -> None:
    whole = path.read_text().rstrip("\n")
    lines, alone = whole.split("\n"), f'ok: [gpu01] => {{\n    "stdout": {json.dumps(whole)}'
    twice = f'{alone},\n    "stdout_lines": [\n{behind("ansible stdout_lines", lines)}    ]\n}}\n'
    for text in (twice, alone + "\n}\n") if path.parent == CORPUS / "nccl" else (twice,):
        assert contents(parse(text)) == whole_contents(path)


def test_nothing_is_learned_from_a_row_that_debug_text_tore() -> None:
    row = (
        "     1048576        262144     float     sum      -1vm:871:871 [0] NCCL INFO "
        "AllReduce: 8 Bytes"
    )
    assert Prefixes([row]).cut("     1048576  1") == Prefixes().cut("     1048576  1")


@pytest.mark.parametrize(
    "line",
    [
        "Error: something else",
        "gpu-node-01:871:871 [0] NCCL INFO Using network Socket",
        "    8             2     float     sum      -1    10.1    0.00    0.00      0",
        "10: a list",
        "+ export NCCL_DEBUG=INFO",
        "{ xfer_size: 64 }",
    ],
)
def test_what_only_resembles_a_learned_prefix_stays(line: str) -> None:
    for form in ("pdsh", "ts", "docker's json-file", "python INFO", "stern"):
        assert Prefixes(behind(form, LINES).split("\n")).cut(line)[0] == line


@pytest.mark.parametrize(
    "header", ["#        (B)    (elements)           (us)  (GB/s)  (GB/s)", ""]
)
def test_rows_without_the_names_of_columns_are_read_behind_a_banner(header: str) -> None:
    banner, devices = LINES[:1], LINES[2:4]
    rows = [line for line in LINES if " float " in line]
    (log,) = parse("\n".join((*banner, *devices, header, *rows, "# Avg bus bandwidth    : 7.25")))
    assert log.outcome == "ok"
    assert len(log.points) == 2 * len(ROWS)


def test_a_row_behind_a_debug_line_without_its_newline_is_a_row() -> None:
    debug = "node0:1:2 [0] NCCL INFO AllReduce: opCount 5 sendbuff 0x7f0 count 64"
    first = next(number for number, line in enumerate(LINES) if " float " in line)
    glued = [f"{debug}{line}" if " float " in line else line for line in LINES]
    for lines in (glued, [*LINES[:first], debug, *glued[first:]]):
        (log,) = parse("\n".join(lines))
        assert (log.outcome, len(log.points)) == ("ok", 2 * len(ROWS))


def test_a_tag_of_mpirun_behind_a_shell_s_unfinished_line_begins_a_line() -> None:
    """What is learned from it would take the shell's text for the name of another process."""
    lines = (LOGS / "nccl/allreduce-1proc-g4.txt").read_text().splitlines()
    (plain,) = read("\n".join(lines))
    tagged = [f"[1,0]<stdout>:{line}" for line in lines]
    (log,) = read("\n".join([f"no end of a line{tagged[0]}", *tagged[1:]]))

    assert (log.outcome, log.points) == (plain.outcome, plain.points)


@pytest.mark.parametrize("alone", [True, False])
def test_how_the_program_ended_stands_beside_its_output_in_an_entry_of_json(*, alone: bool) -> None:
    """As soperator logs a failed check: the table is whole, and the program is not well."""
    output = {"msg": "check", "output": nccl_text(ROWS)}
    ended = {"error": "exit status 3", "level": "fatal"}
    entries = [output, {"msg": "check failed", **ended}] if alone else [{**output, **ended}]
    (log,) = parse("".join(f"{json.dumps(entry)}\n" for entry in entries))
    assert (log.outcome, log.reason) == (Outcome.FAILED, "The exit status was 3.")
    assert log.points
