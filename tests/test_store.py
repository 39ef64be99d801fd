"""Run directories: written so that nothing is lost, found again, and free of secrets."""

import json
import os
import shlex
from pathlib import Path

import pytest

from fabbench.errors import MachineError, RequestError
from fabbench.machines import Host, Inventory, Where
from fabbench.markers import begin, end, tag
from fabbench.model import Arm, Command, Ending, Outcome, Plan, Proof, Shape, Step, Trial
from fabbench.plan import Request
from fabbench.store import RunWriter, StoredRun, open_run, runs
from fabbench.variants import Variant

HEADER = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"
ROW = "64      10      =10      1.2k        0.00s     21.33       3.00       0.33"
ENV = {"FI_TCP_IFACE": "eth0", "AWS_SECRET_ACCESS_KEY": "hunter2", "HF_TOKEN": "hunter2", "MONKEY": "banana"}


def plan_of(*labels: str, repeats: int = 1) -> Plan:
    arms = tuple(Arm(label=label, fabric="tcp") for label in labels)
    trials: list[Trial] = []
    for repeat in range(1, repeats + 1):
        for arm in arms:
            name = f"{len(trials):03}-{arm.label}-r{repeat}"
            command = Command(argv=("fi_pingpong",), env=ENV)
            step = Step(id=f"{name}/64", label="64 B", shape=Shape.PAIR, commands=(command,), timeout_s=1)
            trials.append(
                Trial(
                    id=name,
                    arm=arm,
                    repeat=repeat,
                    steps=(step,),
                    proof=Proof(fabric="tcp"),
                    planned_sizes=(64,),
                )
            )
    return Plan(benchmark="pingpong", target="local", arms=arms, trials=tuple(trials))


def begun(store: Path, plan: Plan) -> RunWriter:
    request = Request(benchmark="pingpong", target="local", fabrics=tuple(arm.fabric for arm in plan.arms))
    host = Host(name="here", providers={"tcp": frozenset({"msg", "rdm"})})
    return RunWriter(store, request, Inventory(target="local", hosts=(host,)), plan)


def log_lines(trial: Trial) -> list[str]:
    step = trial.steps[0].id
    facts = ["    fi_fabric_attr:", "        prov_name: tcp", "        prov_version: 117.0"]
    verbose = ["[debug] util/pingpong.c:252 : Running pingpong test with fi_info:", "fi_info:", *facts]
    lines = [*verbose, HEADER, ROW]
    return [
        begin(step, {"benchmark": "pingpong", "size": 64, "iterations": 10}),
        *(tag("client", line) for line in lines),
        end(step, 0),
    ]


def write(run: RunWriter, trial: Trial, *, finished: bool = True, lines: int | None = None) -> None:
    ending = Ending(status=0, planned_sizes=(64,))
    with run.execution(trial) as execution:
        for line in log_lines(trial)[:lines]:
            execution.write(line)
        if finished:
            execution.finish(ending, ())


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = plan_of("new", "base", repeats=2)
    writer = begun(tmp_path, plan)
    for trial in plan.trials:
        write(writer, trial)
    run = open_run(str(writer.path))
    assert run.arms == plan.arms
    assert run.request["fabrics"] == ["tcp", "tcp"]
    assert [trial.id for trial in run.trials] == [trial.id for trial in plan.trials]
    for arm in plan.arms:
        assert [(log.outcome, log.reason) for log in run.logs(arm.label)] == [(Outcome.OK, None)] * 2
    (log, _) = run.logs("new")
    assert log.source == str(writer.path / "exec" / "000-new-r1" / "output.log")
    assert [(point.size, point.values) for point in log.points] == [(64, (3e-06, 21330000.0, 330000.0))]


def test_the_request_comes_first(tmp_path: Path) -> None:
    writer = begun(tmp_path, plan_of("a", "b"))
    run = open_run("last", tmp_path)
    assert run.path == writer.path
    assert [trial.begun for trial in run.trials] == [False, False]
    assert run.logs("a") == ()


@pytest.mark.parametrize("lines", range(9))
def test_what_is_not_finished_is_truncated(tmp_path: Path, lines: int) -> None:
    plan = plan_of("a")
    writer = begun(tmp_path, plan)
    write(writer, plan.trials[0], finished=False, lines=lines)
    (log,) = open_run("last", tmp_path).logs("a")
    assert (log.outcome, log.reason) == (
        Outcome.TRUNCATED,
        "fabbench was stopped before this execution ended.",
    )
    assert len(log.points) == (1 if lines >= 8 else 0)


def test_lines_are_in_the_file_at_once(tmp_path: Path) -> None:
    plan = plan_of("a")
    with begun(tmp_path, plan).execution(plan.trials[0]) as execution:
        execution.write("one \N{EURO SIGN} \udcff")
        assert (execution.path / "output.log").read_text() == "one \N{EURO SIGN} ?\n"


def test_an_execution_that_is_begun_anew_keeps_the_earlier_attempt(tmp_path: Path) -> None:
    plan = plan_of("a")
    with begun(tmp_path, plan).execution(plan.trials[0]) as execution:
        for line in ("one", "two", "three"):
            execution.write(line)
            execution.begin_anew()
        execution.write("four")
        told = {path.name: path.read_text() for path in execution.path.glob("*.log")}
    earlier = {
        f"interrupted-{number}.log": f"{line}\n" for number, line in ((1, "one"), (2, "two"), (3, "three"))
    }
    assert told == {**earlier, "output.log": "four\n"}


def test_secrets_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOT_DECLARED", "of nobody's concern")
    plan = plan_of("a")
    writer = begun(tmp_path, plan)
    write(writer, plan.trials[0])
    stored = "".join(path.read_text() for path in writer.path.rglob("*") if path.is_file())
    assert "hunter2" not in stored
    assert "of nobody's concern" not in stored
    env = json.loads((writer.path / "exec/000-a-r1/plan.json").read_text())["steps"][0]["commands"][0]["env"]
    assert env == {**dict.fromkeys(ENV, "(redacted)"), "FI_TCP_IFACE": "eth0", "MONKEY": "banana"}


def test_runs_are_found_by_parts_of_their_names(tmp_path: Path) -> None:
    writers = [begun(tmp_path, plan_of("a")) for _ in range(3)]
    newest_first = [path.name for path in runs(tmp_path)]
    assert newest_first == [writer.path.name for writer in reversed(writers)]
    for writer in writers:
        for ref in (writer.id, writer.id[:5], f"pingpong-{writer.id}", writer.path.name, str(writer.path)):
            assert open_run(ref, tmp_path).id == writer.id
    assert open_run("last", tmp_path).id == writers[-1].id
    with pytest.raises(RequestError, match="fits 3 runs"):
        open_run("20", tmp_path)
    with pytest.raises(RequestError, match="no run nonesuch"):
        open_run("nonesuch", tmp_path)
    with pytest.raises(RequestError, match="no run last"):
        open_run("last", tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "damaged"), ("[]", "damaged"), ('{"format": 99}', "has format 99"), ("{}", "has format None")],
)
def test_a_request_that_cannot_be_read(tmp_path: Path, text: str, told: str) -> None:
    writer = begun(tmp_path, plan_of("a"))
    (writer.path / "request.json").write_text(text)
    with pytest.raises(MachineError, match=told):
        StoredRun(writer.path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(MachineError, match="cannot be written: Permission denied"):
        begun(tmp_path / "store", plan_of("a"))


def test_a_store_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot be written: Not a directory"):
        begun(tmp_path / "file" / "store", plan_of("a"))


def test_secrets_are_in_nothing_that_is_kept(tmp_path: Path) -> None:
    """The request's own, those of variants, and both in what was submitted."""
    own = Variant(name="own", env={"MY_PASSWORD": "it's hunter2"})
    where = Where(target="t", launcher="slurm", env=ENV, variants=(own,))
    request = Request(benchmark="pingpong", target="t", where=where, env=ENV)
    writer = RunWriter(tmp_path, request, Inventory(target="t", hosts=()), plan_of("own"))
    words = [f"{name}={value}" for name, value in {**ENV, **own.env}.items()]
    writer.rendered({"job": shlex.join(words)})
    kept = (writer.path / "rendered/job").read_text()
    assert "MONKEY=banana" in kept
    assert "hunter2" not in kept + (writer.path / "request.json").read_text()
    assert kept.count("(redacted)") == 3
