"""Run directories: written so that nothing is lost, found again, and free of secrets."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabbench.analysis.compare import compare
from fabbench.analysis.sequential import level_at
from fabbench.analysis.statistics import LEVEL
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host, Inventory, Target
from fabbench.model.log import Ending, Outcome, begin_marker, end_marker, tag_line
from fabbench.model.plan import Command, Configuration, Execution, Plan, Step, Variant
from fabbench.plan.request import Adaptive
from fabbench.runs.inputs import open_run
from fabbench.runs.load_columns import load, stored_columns
from fabbench.runs.report_pages import stored_comparison
from fabbench.runs.store import RunWriter, StoredRun, runs
from tests.support.requests import execution_by_hand, request

HEADER = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"
ROW = "64      10      =10      1.2k        0.00s     21.33       3.00       0.33"
ENV = {
    "FI_TCP_IFACE": "eth0",
    "AWS_SECRET_ACCESS_KEY": "hunter2",
    "HF_TOKEN": "hunter2",
    "MONKEY": "banana",
}


def plan_of(*labels: str, repeats: int = 1) -> Plan:
    configurations = tuple(Configuration(label=label, fabric="tcp") for label in labels)
    executions: list[Execution] = []
    for repeat in range(1, repeats + 1):
        for configuration in configurations:
            name = f"{len(executions):03}-{configuration.label}-r{repeat}"
            command = Command(argv=("fi_pingpong",), role="server", env=ENV)
            step = Step(id=f"{name}/64", label="64 B", commands=(command,), timeout_s=1)
            executions.append(
                execution_by_hand(
                    configuration, len(executions), repeat=repeat, sizes=(64,), steps=(step,)
                )
            )
    return Plan(
        benchmark="pingpong",
        target="local",
        configurations=configurations,
        executions=tuple(executions),
    )


def begun(store: Path, plan: Plan, **more: Any) -> RunWriter:
    fabrics = (configuration.fabric for configuration in plan.configurations)
    run_request = request("pingpong", PingpongWork(sizes=(64,)), *fabrics, store=store, **more)
    host = Host(name="here", providers={"tcp": frozenset({"msg", "rdm"})})
    return RunWriter(run_request, Inventory(target="local", hosts=(host,)), plan)


def log_lines(execution: Execution) -> list[str]:
    step = execution.steps[0].id
    facts = ["    fi_fabric_attr:", "        prov_name: tcp", "        prov_version: 117.0"]
    verbose = [
        "[debug] util/pingpong.c:252 : Running pingpong test with fi_info:",
        "fi_info:",
        *facts,
    ]
    lines = [*verbose, HEADER, ROW]
    return [
        begin_marker(step, {"benchmark": "pingpong", "size": 64, "iterations": 10}),
        *(tag_line("client", line) for line in lines),
        end_marker(step, 0),
    ]


def write(
    run: RunWriter, execution: Execution, *, finished: bool = True, lines: int | None = None
) -> None:
    ending = Ending(status=0, planned_sizes=(64,))
    with run.execution(execution) as stored:
        for line in log_lines(execution)[:lines]:
            stored.write(line)
        if finished:
            stored.finish(ending)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = plan_of("new", "base", repeats=2)
    writer = begun(tmp_path, plan)
    for execution in plan.executions:
        write(writer, execution)
    run = open_run(str(writer.path))
    assert run.configurations == plan.configurations
    assert run.request.fabrics == ("tcp", "tcp")
    assert [execution.id for execution in run.executions] == [
        execution.id for execution in plan.executions
    ]
    for configuration in plan.configurations:
        assert [(log.outcome, log.reason) for log in run.logs(configuration.label)] == [
            (Outcome.OK, None)
        ] * 2
    (log, _) = run.logs("new")
    assert log.source == str(writer.path / "exec" / "000-new-r1" / "output.log")
    assert [(point.size, point.values) for point in log.points] == [
        (64, (3e-06, 21330000.0, 330000.0))
    ]


def test_a_run_that_looked_after_each_repeat_keeps_its_level_however_it_is_shown(
    tmp_path: Path,
) -> None:
    plan = plan_of("new", "base", repeats=4)
    writer = begun(tmp_path, plan, adaptive=Adaptive(max_repeats=20))
    for execution in plan.executions:
        write(writer, execution)
    level = level_at(4, 20)
    assert level < LEVEL
    assert stored_comparison(stored_columns(open_run(str(writer.path)))).level == level
    assert compare(load(writer.path)).level == level


def test_the_request_comes_first(tmp_path: Path) -> None:
    writer = begun(tmp_path, plan_of("a", "b"))
    run = open_run("last", tmp_path)
    assert run.path == writer.path
    assert [execution.begun for execution in run.executions] == [False, False]
    assert run.logs("a") == ()


@pytest.mark.parametrize("lines", range(9))
def test_what_is_not_finished_is_truncated(tmp_path: Path, lines: int) -> None:
    plan = plan_of("a")
    writer = begun(tmp_path, plan)
    write(writer, plan.executions[0], finished=False, lines=lines)
    (log,) = open_run("last", tmp_path).logs("a")
    assert (log.outcome, log.reason) == (
        Outcome.TRUNCATED,
        "fabbench was stopped before this execution ended.",
    )
    assert len(log.points) == (1 if lines >= 8 else 0)


def test_lines_are_in_the_file_at_once(tmp_path: Path) -> None:
    plan = plan_of("a")
    with begun(tmp_path, plan).execution(plan.executions[0]) as execution:
        execution.write("one \N{EURO SIGN} \udcff")
        assert (execution.path / "output.log").read_text() == "one \N{EURO SIGN} ?\n"


def test_secrets_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOT_DECLARED", "of nobody's concern")
    plan = plan_of("a")
    writer = begun(tmp_path, plan)
    write(writer, plan.executions[0])
    stored = "".join(path.read_text() for path in writer.path.rglob("*") if path.is_file())
    assert "hunter2" not in stored
    assert "of nobody's concern" not in stored
    env = json.loads((writer.path / "exec/000-a-r1/plan.json").read_text())["steps"][0]["commands"][
        0
    ]["env"]
    assert env == {**dict.fromkeys(ENV, "(redacted)"), "FI_TCP_IFACE": "eth0", "MONKEY": "banana"}


def test_runs_are_found_by_parts_of_their_names(tmp_path: Path) -> None:
    writers = [begun(tmp_path, plan_of("a")) for _ in range(3)]
    newest_first = [path.name for path in runs(tmp_path)]
    assert newest_first == [writer.path.name for writer in reversed(writers)]
    for writer in writers:
        for ref in (
            writer.id,
            writer.id[:5],
            f"pingpong-{writer.id}",
            writer.path.name,
            str(writer.path),
        ):
            assert open_run(ref, tmp_path).id == writer.id
    assert open_run("last", tmp_path).id == writers[-1].id
    with pytest.raises(RequestError, match="matches 3 runs"):
        open_run("20", tmp_path)
    with pytest.raises(RequestError, match="Run nonesuch not found"):
        open_run("nonesuch", tmp_path)
    with pytest.raises(RequestError, match="Run last not found"):
        open_run("last", tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "damaged"),
        ("[]", "Expected `object`, got `array`"),
        ('{"format": 99}', r"Invalid enum value 99 - at `\$.format`"),
        ("{}", "missing required field `format`"),
        ("[" * 100_000, "damaged"),
        ('{"format": 1, "id": NaN}', "JSON is malformed"),
        (
            '{"format": 1, "arms": [{"label": "a"}]}',
            r"missing required field `fabric` - at `\$\.arms\[0\]`",
        ),
        ('{"format": 1, "arms": [null]}', r"Expected `object`, got `null` - at `\$\.arms\[0\]`"),
        (
            '{"format": 1, "schedule": ["../../000-a-r1"]}',
            r"matching regex .* - at `\$\.schedule\[0\]`",
        ),
        ('{"format": 1, "hosts": 7}', r"Expected `array`, got `int` - at `\$\.hosts`"),
    ],
)
def test_a_request_that_cannot_be_read_is_damage(tmp_path: Path, text: str, expected: str) -> None:
    writer = begun(tmp_path, plan_of("a"))
    (writer.path / "request.json").write_text(text)
    run = StoredRun(writer.path)
    assert len(run.damage) == 1
    assert re.search(expected, run.damage[0])
    assert run.benchmark == "pingpong"
    with pytest.raises(MachineError, match="is damaged"):
        load(str(writer.path))


def test_what_a_newer_release_adds_is_ignored(tmp_path: Path) -> None:
    plan = plan_of("a")
    writer = begun(tmp_path, plan)
    write(writer, plan.executions[0])
    for path in writer.path.rglob("*.json"):
        path.write_text(json.dumps(added(json.loads(path.read_text()))))
    run = StoredRun(writer.path)
    assert run.damage == ()
    assert [log.outcome for log in run.logs("a")] == [Outcome.OK]


def added(document: Any) -> Any:
    """Return a document with a key more in every object, but for those whose keys are data."""
    if isinstance(document, dict):
        return {name: added(value) for name, value in document.items()} | (
            {"newer": [1]} if {"format", "label", "proof", "ending", "status"} & {*document} else {}
        )
    return [added(value) for value in document] if isinstance(document, list) else document


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("plan.json", "{", "damaged"),
        (
            "plan.json",
            '{"proof": {"fabric": 1}}',
            "Expected `str`, got `int` - at `$.proof.fabric`",
        ),
        ("run.json", "{}", "missing required field `ending`"),
        (
            "run.json",
            '{"ending": {"status": "x"}}',
            "Expected `int | null`, got `str` - at `$.ending.status`",
        ),
        (
            "run.json",
            '{"ending": {"planned_sizes": [[1]]}}',
            "got `array` - at `$.ending.planned_sizes[0]`",
        ),
    ],
)
def test_an_execution_whose_documents_are_damaged_is_no_result(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    plan = plan_of("a", "b")
    writer = begun(tmp_path, plan)
    for execution in plan.executions:
        write(writer, execution)
    (writer.path / "exec/000-a-r1" / name).write_text(text)
    run = StoredRun(writer.path)
    (log,) = run.logs("a")
    assert (log.outcome, len(log.points)) == (Outcome.TRUNCATED, 1)
    assert expected in str(log.reason)
    assert [expected in sentence for sentence in run.damage] == [True]
    assert [log.outcome for log in run.logs("b")] == [Outcome.OK]


def test_a_store_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot be written: Not a directory"):
        begun(tmp_path / "file" / "store", plan_of("a"))


def test_secrets_are_in_nothing_that_is_kept(tmp_path: Path) -> None:
    """The request's own, those of the target and of variants."""
    own = Variant(name="own", env={"MY_PASSWORD": "it's hunter2"})
    where = Target(name="t", launcher="slurm", env=ENV, variants=(own,))
    run_request = request("pingpong", PingpongWork(sizes=(64,)), env=ENV, store=tmp_path)
    writer = RunWriter(
        replace(run_request, target=where), Inventory(target="t", hosts=()), plan_of("own")
    )
    kept = (writer.path / "request.json").read_text()
    assert '"MONKEY": "banana"' in kept
    assert "hunter2" not in kept
    assert kept.count("(redacted)") == 5
