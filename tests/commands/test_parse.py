"""`fabbench parse`: the public JSON, the other formats, and the exit statuses."""

import gzip
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from fabbench.cli import cli
from fabbench.model.log import METRICS, Damaged, Finding, Log, Outcome, Point, Severity
from fabbench.report.log_report import log_writer
from tests.support.any_text import CHARACTERS
from tests.support.command_line import runner
from tests.support.nccl_text import nccl_text
from tests.support.paths import ROOT
from tests.support.read_logs import LOGS

NCCL = LOGS / "nccl"
OK = str(NCCL / "x-net-socket.txt")
FAILED = str(NCCL / "fail-killed.txt")
UNKNOWN = str(LOGS / "launchers/ompi5-tag-output.txt")
MISSING = str(NCCL / "no-such.txt")
FORMATS = ("text", "json", "csv", "markdown")
SECRET = "EXAMPLE/NOT/A/REAL/KEY"


def parse(*arguments: str, stdin: str | None = None) -> Result:
    return runner().invoke(cli, ["parse", *arguments], input=stdin)


def test_a_list_means_its_files(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a.log", "b.log", "c,d.log")]
    for number, name in enumerate(names, 1):
        Path(name).write_text(nccl_text([(1 << 20, number)]))
    found = document(",".join(names[:2]), names[2])
    assert ([each["source"] for each in found["logs"]], found["errors"]) == (names, [])
    done = parse(f"{names[0]},{tmp_path}/nosuch.log", "--format", "json")
    assert done.exit_code == 3
    assert [each["source"] for each in json.loads(done.stdout)["errors"]] == [
        f"{tmp_path}/nosuch.log"
    ]


def document(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(parse("--format", "json", *arguments).stdout)
    return found


# ---------------------------------------------------------------- the text of the contract


def as_plain_data(logs: Sequence[Log]) -> list[dict[str, Any]]:
    """The contract as design and documentation say it, by way of dicts."""
    return [
        {
            "source": judged.source,
            "benchmark": judged.benchmark,
            "case": judged.case,
            "outcome": judged.outcome.value,
            "reason": judged.reason,
            "judgement": None,
            "peak": peak(judged),
            "facts": dict(judged.facts),
            "findings": [
                {
                    "code": each.code,
                    "severity": each.severity,
                    "meaning": each.meaning,
                    "line": each.line,
                    "advice": each.advice,
                }
                for each in judged.findings
            ],
            "expectations": [],
            "damaged": [{"line": row.line, "text": row.text} for row in judged.damaged],
            "samples": [each._asdict() for each in judged.samples],
        }
        for judged in logs
    ]


def peak(log: Log) -> dict[str, Any] | None:
    """Return the highest rate of a log, of busbw if it has any, out of place if both are there."""
    outside = [each for each in log.samples if each.labels.get("placement") != "in-place"]
    for metric in ("busbw", "bandwidth"):
        found = [each for each in outside or log.samples if each.metric == metric]
        best = max(found, key=lambda each: (each.value, each.size), default=None)
        if best and best.value:
            return {name: getattr(best, name) for name in ("metric", "unit", "value", "size")}
    return None


TEXT = st.text(CHARACTERS, max_size=20)
LABELS = [
    {"placement": "in-place", "dtype": "float", "redop": "sum", "root": "-1"},
    {"placement": "out-of-place", "dtype": 'a"\\\n\u2028é'},
    {},
]
VALUES = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@st.composite
def points(draw: st.DrawFn) -> Point:
    metrics = draw(st.lists(st.sampled_from(sorted(METRICS)), min_size=1, max_size=5, unique=True))
    size = draw(st.sampled_from([0, 8, 8, 1 << 40]))
    labels = draw(st.sampled_from(LABELS))
    return Point(size, labels, tuple(metrics), tuple(draw(VALUES) for _ in metrics))


@st.composite
def judged_logs(draw: st.DrawFn) -> Log:
    return Log(
        source=draw(TEXT),
        benchmark=draw(st.sampled_from(["nccl", None])),
        case=draw(TEXT | st.none()),
        outcome=draw(st.sampled_from(Outcome)),
        reason=draw(TEXT | st.none()),
        facts=draw(st.dictionaries(TEXT, TEXT | st.integers(), max_size=3)),
        findings=[
            Finding(
                code="x",
                severity=Severity.NOTE,
                meaning=draw(TEXT),
                line=draw(TEXT),
                advice=draw(TEXT),
            )
        ],
        damaged=[Damaged(7, draw(TEXT))],
        points=draw(st.lists(points(), max_size=12)) * draw(st.sampled_from([1, 1, 40])),
    )


@given(st.lists(judged_logs(), max_size=4), st.lists(st.tuples(TEXT, TEXT), max_size=2))
def test_the_text_is_that_of_json_itself(logs: list[Log], errors: list[tuple[str, str]]) -> None:
    writer = log_writer("json")
    text = writer.opening + writer.separator.join("".join(writer.log(each, None)) for each in logs)
    text += writer.closing(errors)
    expected = {
        "format": 1,
        "logs": as_plain_data(logs),
        "errors": [{"source": source, "reason": reason} for source, reason in errors],
    }
    found = json.loads(text)
    # Also the order of keys, and every digit: a number is written as Python's json writes it.
    assert json.dumps(found) == json.dumps(expected)
    assert text.isascii()


def test_damaged_rows_are_listed_with_their_line(tmp_path: Path) -> None:
    lines = (NCCL / "alltoall-mpi.txt").read_text().splitlines()
    at = (
        next(
            number
            for number, line in enumerate(lines)
            if line.startswith(" ") and " float " in line
        )
        + 5
    )
    lines[at] = lines[at][:50]
    (tmp_path / "x.log").write_text("\n".join(lines))
    (element,) = document(str(tmp_path / "x.log"))["logs"]
    assert element["outcome"] == "truncated"
    assert element["damaged"] == [{"line": at + 1, "text": " ".join(lines[at].split())}]


# ---------------------------------------------------------------- exit statuses


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    for command in ("parse", "explain"):
        done = runner().invoke(cli, (command, str(tmp_path)))
        assert (done.exit_code, "No log found in it." in done.stderr) == (3, True)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("files", "status", "exit_zero"),
    [
        ((OK, str(NCCL / "split.txt")), 0, 0),
        ((OK, FAILED), 4, 0),
        ((MISSING, OK), 3, 3),
        ((UNKNOWN,), 3, 3),
        ((FAILED, UNKNOWN, OK), 4, 3),
    ],
)
def test_exit_statuses_in_every_format(
    form: str, files: tuple[str, ...], status: int, exit_zero: int
) -> None:
    done = parse("--format", form, *files)
    assert (done.exit_code, bool(done.stderr)) == (status, bool({MISSING, UNKNOWN} & {*files}))
    assert (MISSING in files) == (f"Error: {MISSING}: cannot be read: No such file" in done.stderr)
    assert parse("--format", form, "--exit-zero", *files).exit_code == exit_zero


def test_sizes_that_no_log_has_are_a_mistake(tmp_path: Path) -> None:
    for number, sizes in enumerate(((1 << 20, 1 << 21), (1 << 21, 1 << 22))):
        (tmp_path / f"{number}.log").write_text(nccl_text([(size, 10) for size in sizes]))
    assert parse(str(tmp_path), "--size", "3M").exit_code == 2
    assert parse(str(tmp_path), "--size", "3M", "--exit-zero").exit_code == 2
    done = parse(str(tmp_path), "--size", "1M")  # one of them has it
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_file_in_which_nothing_is_recognized_is_an_error() -> None:
    assert UNKNOWN in parse(UNKNOWN).stderr
    found = document(UNKNOWN)
    assert (found["format"], found["logs"], [each["source"] for each in found["errors"]]) == (
        1,
        [],
        [UNKNOWN],
    )
    assert "No recognized output" in found["errors"][0]["reason"]


def test_nothing_that_is_a_benchmarks_vanishes_from_a_directory(tmp_path: Path) -> None:
    write = {
        "a.log": Path(OK).read_text(),
        "ibv.log": (
            "8192000 bytes in 0.01 seconds = 9867.39 Mbit/sec\n1000 iters in 0.01 seconds "
            "= 6.64 usec/iter\n"
        ),
        "ior.log": "IOR-3.3.0: MPI Coordinated Test of Parallel I/O\n",
        "iperf.log": "Connecting to host 10.0.0.2, port 5201\n",
        "mooncake.log": (
            "Test completed: duration 10.00, batch count 1234, throughput 23.400 Gbps\n"
        ),
        "nccom.log": (
            "    size(B)    count(elems)    type    time:avg(us)    algbw(GB/s)    busbw(GB/s)\n"
            "     524288          131072    fp32          343.84           1.42           2.80\n"
            "Avg bus bandwidth:      2.8000GB/s\n"
        ),
        "bench.sbatch": "srun ./build/all_reduce_perf -b 8 -e 2G\n",
        "job.out": "+ srun ./build/all_reduce_perf -b 8 -e 2G\n",
        "notes.txt": "Nothing that is known.\n",
        "parsed.json": (
            '{"format":1,"logs":[{"findings":[{"line":"# Avg bus bandwidth    : 1"}]}]}\n'
        ),
    }
    for name, text in write.items():
        (tmp_path / name).write_text(text)
    result = parse("--format", "json", str(tmp_path))
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert [log["source"] for log in found["logs"]] == [f"{tmp_path}/a.log"]
    assert found["errors"] == [
        {
            "source": f"{tmp_path}/{name}.log",
            "reason": f"This is output of {tool}, which fabbench does not read.",
        }
        for name, tool in (
            *(("ibv", "ibv_rc_pingpong and similar"), ("ior", "IOR"), ("iperf", "iperf3")),
            ("mooncake", "Mooncake's transfer_engine_bench in Rust (whose Gbps are GB/s)"),
            ("nccom", "AWS Neuron's nccom-test"),
        )
    ]
    assert f"Note: {tmp_path}/job.out: It names all_reduce_perf" in result.stderr
    assert "sbatch" not in result.stderr
    assert "notes" not in result.stderr


def test_mpi_lines_alone_are_a_log_unless_others_of_their_directory_are(tmp_path: Path) -> None:
    mpi = tmp_path / "rank.1"
    mpi.write_text("[1] MPI startup(): libfabric provider: efa\nstep 1\n")
    found = json.loads(parse("--format", "json", "--fabric", "efa", str(mpi)).stdout)["logs"]
    said = [(log["case"], log["outcome"], log["facts"]["transport"]) for log in found]
    assert said == [("mpi-debug", "observed", "efa")]
    (tmp_path / "rank.0").write_text(Path(OK).read_text())
    assert parse(str(tmp_path)).exit_code == 0
    (tmp_path / "counters").write_text("rx_drops:5\n")
    assert runner().invoke(cli, ["compare", str(tmp_path)]).exit_code == 0


def test_documents_that_quote_messages_are_no_runs_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "ok.log").write_text(Path(OK).read_text())
    quoted = "It ended so:\n\ncommand terminated with exit code 1\n"
    died = ["died", "died.log", "died.node-12", "died.slurm-out", "died.stderr"]
    for name in (*died, "notes.md", "run.sh", "run.py", "job.yaml"):
        (tmp_path / name).write_text(quoted)
    found = document(str(tmp_path))["logs"]
    assert [Path(log["source"]).name for log in found] == [*died, "ok.log"]
    assert document(str(tmp_path / "notes.md"))["logs"][0]["outcome"] == "failed"


def test_a_document_counts_for_its_rows_and_no_banner(tmp_path: Path) -> None:
    whole = Path(OK).read_text()
    (tmp_path / "rows.md").write_text(whole)
    (tmp_path / "banner.md").write_text(whole[: whole.index("# Using devices")])
    (tmp_path / "banner.log").write_text(whole[: whole.index("# Using devices")])
    found = document(str(tmp_path))["logs"]
    said = {Path(log["source"]).name: log["outcome"] for log in found}
    assert said == {"rows.md": "ok", "banner.log": "truncated"}


def test_a_benchmarks_line_without_a_result_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "ok.log").write_text(Path(OK).read_text())
    entry = '{"pages": [{"body": "# nThread 1 nGpus 1 minBytes 8 maxBytes 8"}]}'
    (tmp_path / "page.md").write_text(f"One\n{entry}\n")
    result = parse(str(tmp_path))
    assert (result.exit_code, f": {entry}" in result.stderr) == (3, True)


def test_many_files_are_read_by_all_cores_with_their_errors(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number:02d}.log.gz").write_bytes(gzip.compress(Path(OK).read_bytes()))
        shutil.copy(UNKNOWN, tmp_path / f"{number:02d}.txt")
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b\x08 no gzip at all")
    found = document(str(tmp_path))
    assert [log["source"] for log in found["logs"]] == [
        f"{tmp_path}/{number:02d}.log.gz" for number in range(12)
    ]
    assert [error["source"] for error in found["errors"]] == [f"{tmp_path}/bad.gz"]


def test_standard_input_is_read_and_named_so() -> None:
    result = parse("--format", "json", "-", stdin=Path(OK).read_text())
    assert result.exit_code == 0
    (element,) = json.loads(result.stdout)["logs"]
    assert element["source"] == "-"
    (from_file,) = document(OK)["logs"]
    assert {**element, "source": OK} == from_file
    assert parse("-", stdin="nothing").exit_code == 3


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ((), 4, "(FI_PROVIDER=efa), but socket"),
        (("--fabric", "efa"), 4, "but socket carried"),
        (("--fabric", "tcp"), 0, ""),
    ],
)
def test_a_fabric_that_was_not_used_ends_with_4(
    asked: tuple[str, ...], status: int, said: str
) -> None:
    done = parse(*asked, str(NCCL / "x-ofi-efa-missing.txt"))
    assert (done.exit_code, said in done.stdout) == (status, True)


# ---------------------------------------------------------------- formats


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_tables_show_the_figures_the_facts_and_the_reason(form: str) -> None:
    shown = parse(
        "--format", form, str(NCCL / "x-ofi-efa-missing.txt"), FAILED, "--fabric", "efa"
    ).stdout
    words = (
        "5.01",
        "4.84",
        "64 MB",
        "off-fabric",
        "network socket",
        "network plugin failed",
        "reported: prterun",
    )
    assert [each for each in words if each not in shown] == []


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("cut", [None, 4000, 2500])
def test_nothing_of_the_environment_in_nccl_tests_json_is_ever_shown(
    form: str, cut: int | None, tmp_path: Path
) -> None:
    text = (NCCL / "all_reduce.json").read_text()
    secrets = (SECRET, "AWS_SECRET", "OMPI_")
    assert all(each in text[:2500] for each in secrets)
    file = tmp_path / "x.json"
    file.write_text(text[:cut])
    result = parse("--format", form, str(file))
    assert result.exit_code == (4 if cut else 0)
    assert [each for each in secrets if each in result.output] == []


# ---------------------------------------------------------------- expectations

P4D = ROOT / "examples/logs/published-p4d-efa.txt"
NODES = ("--instance-type", "ml.p4d.24xlarge", "--nodes", "2")


def test_what_is_normal_is_reported_where_the_instance_type_is_known() -> None:
    line = "expectation: normal: 77.35 GB/s at 2 GB, 83 % of the ceiling of the NICs (93.75 GB/s)."
    for command in ("parse", "explain"):
        assert line in runner().invoke(cli, [command, str(P4D), *NODES]).stdout
    ((found,),) = [each["expectations"] for each in document(str(P4D), *NODES)["logs"]]
    wanted = {
        "verdict": "normal",
        "size": 2 << 30,
        "published_min": 77.35e9,
        "published_max": 77.9e9,
        "causes": [],
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["published"][0]["source"].startswith("https://")
    assert "expectation" not in parse(str(P4D)).stdout


def test_fewer_nics_than_were_asked_for_are_off_fabric(tmp_path: Path) -> None:
    line = "NET/OFI Selected provider is efa, fabric is efa (found 1 nics)"
    log = tmp_path / "x.log"
    log.write_text(
        f"node0:100:201 [0] NCCL INFO {line}\n{nccl_text([(1 << 20, 10.0), (1 << 21, 11.0)])}"
    )
    assert parse(str(log)).exit_code == 0
    assert "nics-unchecked" in parse(str(log)).stdout
    for known in (NODES[:2], ("--nics", "4")):
        assert parse(str(log), *known).exit_code == 4
        assert runner().invoke(cli, ["explain", str(log), *known]).exit_code == 4
        assert runner().invoke(cli, ["compare", str(log), str(P4D), *known]).exit_code == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("parse examples/logs/allreduce-2node-socket.txt", ["peak 5.58 GB/s at 32 MB"]),
        ("parse examples/logs", ["logs: ", "x-ofi-efa-missing.txt: all_reduce: off-fabric"]),
        (
            "explain examples/logs/x-ofi-efa-missing.txt --efa",
            ["all_reduce: off-fabric", "efa was requested", "(plugin-failed)", "fi_info -p efa"],
        ),
    ],
)
def test_a_text_that_is_longer_than_the_terminal_ends_with_its_answer(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    said: Sequence[str],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for lines, is_long in (("12", True), ("500", False)):
        for name, value in (("COLUMNS", "80"), ("LINES", lines), ("NO_COLOR", "1")):
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            cli.main(words.split(), "fabbench")
        shown = capsys.readouterr().out
        end = " ".join(shown.splitlines()[-12:])
        assert all(each in end for each in said) == is_long
