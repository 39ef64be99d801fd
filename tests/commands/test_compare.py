"""`fabbench compare`: log files and runs in, tables and exit statuses out."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.cli import cli
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host, Inventory
from fabbench.model.log import Ending
from fabbench.model.plan import Configuration, Plan
from fabbench.model.units import format_change
from fabbench.runs.load_columns import load
from fabbench.runs.store import RunWriter
from tests.support.command_line import runner
from tests.support.logs_by_hand import GB, KB, MB
from tests.support.nccl_text import EFA, NON_EFA, PUBLISHED, SIZES, nccl_text
from tests.support.paths import EXAMPLES, ROOT
from tests.support.requests import execution_by_hand, request

SOCKET = "".join(
    f"node{rank // 8}:{100 + rank}:{100 + rank} [{rank % 8}] NCCL INFO Using network Socket\n"
    for rank in range(16)
)
"""What each of the ranks of `nccl_text` prints."""
CHANNEL = "node0:100:100 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"


def compare(*arguments: str | Path) -> Result:
    return runner().invoke(cli, ["compare", *map(str, arguments)])


def rows_of(result: Result) -> list[str]:
    """Return the lines of the first table of Markdown, without padding and trailing zeros."""
    lines = [re.sub(r" *\| *", "|", line).strip("|") for line in result.stdout.splitlines()]
    lines = [re.sub(r"\.0+\b|(\.\d*[1-9])0+\b", r"\1", line) for line in lines]
    start = next(index for index, line in enumerate(lines) if line.startswith("Message Size|"))
    return [lines[start], *lines[start + 2 : lines.index("", start)]]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def efa(tmp_path: Path) -> Path:
    return write(tmp_path / "EFA.log", nccl_text(zip(SIZES, EFA, strict=True)))


@pytest.fixture
def tcp(tmp_path: Path) -> Path:
    return write(tmp_path / "TCP.log", nccl_text(zip(SIZES, NON_EFA, strict=True)))


# ---------------------------------------------------------------- the published table


def in_percent_below_twice(row: str) -> str:
    """Return a published row with its factor as the program writes changes."""
    *figures, factor = row.split("|")
    new, base = map(float, figures[1:])
    change = new / base
    assert float(factor.removesuffix(" x")) == pytest.approx(change, abs=0.1)
    text = re.sub(r"\.0\b", "", format_change(change))
    return "|".join((*figures, text))


def test_a_log_pair_gives_the_published_table(efa: Path, tcp: Path) -> None:
    result = compare(efa, tcp, "--label", "EFA", "--label", "non-EFA")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith(
        "all_reduce, 2 × 8 GPUs: EFA 77.35 GB/s vs non-EFA 4.13 GB/s at 2 GB; "
        "plateau 18.3 x (13.9 to 24.2)"
    )
    assert rows_of(result) == [
        "Message Size|busbw EFA (GB/s)|busbw non-EFA (GB/s)|Speed-up",
        "≤ 256 B|60–64 us|60–64 us|-",
        *map(in_percent_below_twice, PUBLISHED[6:]),
    ]
    assert "transport unknown" in result.stdout
    assert "### What stands out" in lines
    assert "| ≥ 32 MB " in result.stdout
    assert result.stderr == ""


# ---------------------------------------------------------------- several executions in one file


def test_executions_of_one_kind_in_one_file_are_repeats(tmp_path: Path) -> None:
    text = "".join(nccl_text([(KB, value), (MB, value)]) for value in (1, 5, 2))
    result = compare(write(tmp_path / "a.log", text))
    assert [row.split("|")[1] for row in rows_of(result)[1:]] == ["2", "2"]
    assert "median of 3 repeats (n = 3)" in result.stdout


# ---------------------------------------------------------------- exit statuses


def test_names_that_differ_in_a_number_get_the_list_to_paste(tmp_path: Path, efa: Path) -> None:
    after = [write(tmp_path / f"after-{number}.log", efa.read_text()) for number in (1, 2, 3)]
    hint = f"{after[0]},{after[1]},{after[2]} {efa}"
    assert hint in compare(*after, efa).stderr
    assert "repeats" not in compare(after[0], after[1]).stderr
    assert "repeats" not in compare(hint.split(maxsplit=1)[0], efa).stderr


def test_what_one_column_does_not_state_is_not_common(efa: Path) -> None:
    published = [str(EXAMPLES / f"logs/published-p4d-{name}.txt") for name in ("efa", "tcp")]
    done = compare(*published, EXAMPLES / "logs/x-ofi-tcp.txt")
    common = next(line for line in done.stdout.splitlines() if "Common to all columns" in line)
    assert ("all_reduce" in common, "rank" in common, "GPU" in common) == (True, False, False)
    assert done.stdout.startswith("all_reduce: published-p4d-efa")


def test_differences_are_refused(tmp_path: Path, efa: Path) -> None:
    other = write(tmp_path / "b.log", nccl_text([(MB, 4)], ranks=8))
    result = compare(efa, other)
    assert (result.exit_code, result.stdout) == (2, "")
    assert ("16 in EFA, 8 in b" in result.stderr, "--allow ranks" in result.stderr) == (True, True)
    allowed = compare(efa, other, "--allow", "ranks", "--allow", "gpus-per-host")
    assert (allowed.exit_code, "(allowed): 16 in EFA, 8 in b." in allowed.stdout) == (0, True)


OF_EACH_RANK = "".join(
    line.replace("node0:100:100 [0]", f"node{rank // 8}:{100 + rank}:{100 + rank} [{rank % 8}]")
    for rank in range(16)
    for line in (SOCKET, CHANNEL.replace("0[0] -> 8[0]", f"{rank}[0] -> {(rank + 8) % 16}[0]"))
)
ON_SOCKETS = nccl_text([(MB, 47.11)]).replace("#\n#      ", OF_EACH_RANK + "#\n#      ", 1)


@pytest.mark.parametrize(
    ("text", "fabric", "status", "said", "shown"),
    [
        (nccl_text([(MB, 47.11)], wrong=3), "any", 4, "corrupt", False),
        (nccl_text([(MB, 47.11)], footer=False), "any", 4, "a 47.11 GB/s (truncated) vs", True),
        (ON_SOCKETS, "tcp", 0, "a = socket", True),
        (ON_SOCKETS, "efa", 4, "but socket carried", False),
    ],
)
def test_wrong_data_is_never_a_number(  # noqa: PLR0913, PLR0917 - one of each
    tmp_path: Path, tcp: Path, text: str, fabric: str, status: int, said: str, shown: bool
) -> None:
    result = compare(write(tmp_path / "a.log", text), tcp, "--fabric", fabric, "--fabric", "any")
    assert (result.exit_code, "47.11" in result.stdout) == (status, shown)
    assert said in result.stdout


def test_a_baseline_may_be_truncated(tmp_path: Path, tcp: Path) -> None:
    cut = write(tmp_path / "a.log", nccl_text([(MB, 47.11)], footer=False))
    assert compare(tcp, cut).exit_code == 0


# ---------------------------------------------------------------- gates


def test_a_gate_that_holds(efa: Path, tcp: Path) -> None:
    result = compare(efa, tcp, "--gate", "busbw@1M..2G:5%", "--gate", "busbw@1G>=70GB/s")
    expected = "Gate passed: busbw@1M..2G:5%\nGate passed: busbw@1G>=70GB/s\n"
    assert (result.exit_code, result.stderr) == (0, expected)
    assert "| busbw@1M..2G:5%  | passed | " in result.stdout


def test_a_breach_is_a_line_and_status_1(efa: Path, tcp: Path) -> None:
    result = compare(tcp, efa, "--gate", "busbw@1G:5%", "--gate", "busbw@2G..1T:5%")
    assert result.exit_code == 1
    one, other = result.stderr.splitlines()
    assert re.match(
        (
            r"Gate failed: busbw@1G:5%: .* 4.08 .* 94.6 % worse than 75.34 .*0.041 to 0.072 x, "
            r"measured once"
        ),
        one,
    )
    assert re.match(
        r"Gate failed: busbw@2G..1T:5%: .* 4.13 .* 94.7 % worse than 77.35 .*0.040 to 0.071 x, ",
        other,
    )
    made = json.loads(compare(tcp, efa, "--gate", "busbw@1G:5%", "--format", "json").stdout)
    assert (len(made["breaches"]), made["status"]) == (1, 1)


@pytest.mark.parametrize(
    "text", [nccl_text([(MB, 1)], wrong=3), nccl_text([(MB, 47)], footer=False)]
)
def test_what_cannot_be_trusted_beats_a_breach(tmp_path: Path, tcp: Path, text: str) -> None:
    assert compare(write(tmp_path / "a.log", text), tcp, "--gate", "busbw@1M:5%").exit_code == 4


# ---------------------------------------------------------------- runs


def store_run(store: Path, configurations: dict[str, list[float | None]]) -> str:
    """Write a run of nccl whose executions printed one row of 1 GB each (GB/s).

    None: it never began.
    """
    texts = {
        label: [
            None if value is None else SOCKET + CHANNEL + nccl_text([(GB, value)])
            for value in values
        ]
        for label, values in configurations.items()
    }
    return store_texts(store, "nccl", texts, size=GB)


def store_texts(
    store: Path, benchmark: str, configurations: Mapping[str, Sequence[str | None]], *, size: int
) -> str:
    """Write a run whose executions printed these texts; None: it never began."""
    made = tuple(Configuration(label=label, fabric=label) for label in configurations)
    pairs = [
        (each, repeat) for each in made for repeat in range(1, len(configurations[each.label]) + 1)
    ]
    executions = tuple(
        execution_by_hand(each, number, repeat=repeat, sizes=(size,))
        for number, (each, repeat) in enumerate(pairs)
    )
    plan = Plan(benchmark=benchmark, target="local", configurations=made, executions=executions)
    inventory = Inventory(target="local", hosts=(Host(name="here"),))
    writer = RunWriter(
        request(benchmark, PingpongWork(sizes=(size,)), store=store), inventory, plan
    )
    for execution in executions:
        text = configurations[execution.configuration.label][execution.repeat - 1]
        if text is not None:
            with writer.execution(execution) as stored:
                for line in text.splitlines():
                    stored.write(line)
                stored.finish(Ending(status=0, planned_sizes=(size,)))
    return writer.id


def test_one_run_compares_its_configurations(tmp_path: Path) -> None:
    run = store_run(tmp_path, {"socket": [2.0, 8.0, 4.0], "tcp": [1.0, 2.0, 3.0]})
    for name in (run, "last"):
        result = compare(name, "--store", tmp_path)
        assert result.exit_code == 0, result.output
        header, row = rows_of(result)
        assert header.split("|")[1:3] == ["busbw socket (GB/s)", "busbw tcp (GB/s)"]
        assert row == "1 GB|4|2|2 x|0.53 to 9.1 x"
        assert f"socket from run {run}" in result.stdout


def test_the_configurations_of_one_run_may_have_their_own_endpoints(tmp_path: Path) -> None:
    table = "bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec\n64 1k =1k 125k {}\n"
    logs = {
        label: (
            f"$ fi_pingpong -p {label} -e {endpoint} -I 1000 -S 64 "
            f"10.0.0.1\n{table.format(figures)}"
        )
        for label, endpoint, figures in (
            ("shm", "rdm", "0.01s 10.00 6.40 0.16"),
            ("tcp", "msg", "0.03s 5.00 12.80 0.08"),
        )
    }
    files = [write(tmp_path / f"{label}.log", text) for label, text in logs.items()]
    assert compare(*files).exit_code == 2
    run = store_texts(
        tmp_path, "pingpong", {label: [text] for label, text in logs.items()}, size=64
    )
    result = compare(run, "--store", tmp_path)
    assert rows_of(result)[1:] == ["64 B|6.4|12.8|2 x"]
    assert "rdm in shm, msg in tcp." in result.stdout


def test_runs_configurations_and_files_mix(tmp_path: Path, efa: Path) -> None:
    run = store_run(tmp_path, {"socket": [4.0], "tcp": [2.0]})
    result = compare(efa, f"{run}:tcp", "--store", tmp_path, "--metric", "busbw")
    assert result.exit_code == 0, result.output
    assert "1 GB|75.34|2|37.7 x" in rows_of(result)


def test_a_configuration_off_its_fabric_has_no_number(tmp_path: Path) -> None:
    run = store_run(tmp_path, {"efa": [47.11], "tcp": [2.0]})
    result = compare(run, "--store", tmp_path)
    assert result.exit_code == 4
    assert rows_of(result)[1:] == ["1 GB|off-fabric|2|-"]
    assert "47.11" not in result.stdout


def test_inputs_that_are_not_there(several: Path) -> None:
    run, first = store_run(several / "store", {"tcp": [4.0]}), several / "new/new1.log"
    (several / "empty").mkdir()
    for name, error, match in (
        ("c,d", RequestError, "not found"),
        (str(several / "store"), RequestError, "holds runs"),
        (
            f"{first},{several}/new9.log",
            MachineError,
            f"{several}/new9.log cannot be read: No such file",
        ),
        (f"{first},{several}/new/notes.md", MachineError, f"{several}/new/notes.md is recognized"),
        (str(several / "empty"), MachineError, f"{several}/empty is recognized"),
    ):
        with pytest.raises(error, match=match):
            load(name, store=several / "store")
    with pytest.raises(RequestError, match="no effect on a run"):
        load(run, store=several / "store", fabrics=["efa"])
    assert len(load(run, store=several / "store", fabrics=["any"])) == 1


# ---------------------------------------------------------------- several files


def noisy(*figures: float) -> list[str]:
    return [
        nccl_text([(64 * MB, each), (128 * MB, each * 1.1), (256 * MB, each * 1.2)])
        for each in figures
    ]


@pytest.fixture
def several(tmp_path: Path) -> Path:
    for name, figures in (("new", (60, 61, 59)), ("base", (80, 82, 79))):
        (tmp_path / name).mkdir()
        for number, text in enumerate(noisy(*figures), 1):
            write(tmp_path / name / f"{name}{number}.log", text)
    write(tmp_path / "new/notes.md", "Measured on a Monday.\n")
    return tmp_path


def listed(folder: Path) -> str:
    return ",".join(map(str, sorted(folder.glob("*.log"))))


def test_files_of_a_list_and_of_a_directory_are_repeats(several: Path) -> None:
    new, base = several / "new", several / "base"
    for one, other in ((new, base), (listed(new), listed(base)), (f"{new}/", listed(base))):
        done = compare(one, other, "--gate", "busbw:5%")
        assert done.exit_code == 1, done.output
        assert "3 and 3 executions" in done.stderr
        assert rows_of(done)[0].startswith("Message Size|busbw new (GB/s)|busbw base (GB/s)|")
        assert "(n = 3)" in done.stdout
        assert "measured once" not in done.output
    done = compare(new, "--baseline", listed(base), "--gate", "busbw:5%", "--format", "json")
    assert (done.exit_code, json.loads(done.stdout)["columns"][1]["executions"]) == (1, 3)


def test_markers_of_several_files_make_no_columns(several: Path) -> None:
    for number, file in enumerate(sorted((several / "new").glob("*.log"))):
        step = f"{number:03}-{'ab'[number % 2]}-r1/all_reduce"
        file.write_text(
            f"#@fabbench begin {step} benchmark=nccl\n{file.read_text()}#@fabbench end {step} 0\n"
        )
    (column,) = load(listed(several / "new"), store=several)
    assert (column.label, len(column.logs)) == ("new", 3)


# ---------------------------------------------------------------- copies


def test_copies_count_once(several: Path) -> None:
    new, base = noisy(60)[0], noisy(80)[0]
    once = write(several / "once.log", new), write(several / "base.log", base)
    twice = (
        write(several / "twice.log", new * 3),
        listed(several / "base") + f",{several}/base/base1.log",
    )
    assert "(measured once)" in compare(*once).stdout
    found, single = (
        json.loads(compare(file, once[1], "--format", "json").stdout)
        for file in (twice[0], once[0])
    )
    assert [each["n"] for each in found["rows"]] == [1] * 6
    assert [each["executions"] for each in found["columns"]] == [1, 1]
    assert found["rows"][0]["ratio_low"] == single["rows"][0]["ratio_low"]
    assert any(note.startswith("twice: 2 of 3 tables") for note in found["notes"])
    done = compare(several / "new", twice[1])
    assert ("(n = 3)" in done.stdout, "base: 1 of 4 tables" in done.stdout) == (True, True)


def test_executions_that_markers_tell_apart_are_no_copies(several: Path) -> None:
    text = noisy(60)[0]
    steps = [
        f"#@fabbench begin {number:03}-tcp-r{number}/all_reduce benchmark=nccl\n{text}"
        f"#@fabbench end {number:03}-tcp-r{number}/all_reduce 0\n"
        for number in (1, 2, 3)
    ]
    for texts, executions in ((steps, 3), (steps * 2, 3), ([steps[0], text], 1)):
        made = write(several / "made.log", "".join(texts))
        (column,) = json.loads(compare(made, "--format", "json").stdout)["columns"]
        assert column["executions"] == executions


# ---------------------------------------------------------------- in CI


def test_a_junit_file_is_written_beside_the_result(efa: Path, tcp: Path, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    result = compare(efa, tcp, "--gate", "busbw@2G>=100GB/s", "--junit", junit, "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)["status"]) == (1, 1)
    assert 'failures="1"' in junit.read_text("utf-8")


def test_a_junit_file_that_cannot_be_written_is_refused_first(
    efa: Path, tcp: Path, tmp_path: Path
) -> None:
    result = compare(efa, tcp, "--junit", tmp_path / "none" / "junit.xml")
    assert (result.exit_code, result.stdout, "--junit." in result.stderr) == (3, "", True)


def test_each_configuration_is_compared_with_what_is_normal() -> None:
    files = [str(ROOT / f"examples/logs/published-p4d-{name}.txt") for name in ("efa", "tcp")]
    words = [
        *files,
        "--instance-type",
        "p4d.24xlarge",
        "--nodes",
        "2",
        "--fabric",
        "any",
        "--fabric",
        "tcp",
    ]
    for share, status in ((80, 0), (90, 1)):
        done = compare(*words, "--format", "json", "--gate", f"busbw@2G>={share}%ceiling")
        assert done.exit_code == status
        found = json.loads(done.stdout)["expectations"]
        assert [each["verdict"] for each in found] == ["normal", "normal"]
    assert "84.38 GB/s, 90 %" in done.stderr
