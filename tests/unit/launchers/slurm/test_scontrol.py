"""What Slurm's commands print, and what it comes to.

The texts are those of Slurm 22.05 in the lab.
"""

import json

import pytest

from fabbench.evidence.known_errors import fatal_message
from fabbench.hosts.check import Status
from fabbench.launchers.slurm.render import overruling
from fabbench.launchers.slurm.scontrol import (
    SlurmNode,
    check_nodes,
    explain_end,
    explain_pending,
    gpus_of,
    idle_alike,
    is_unknown_job,
    job_state,
    nodes,
    nodes_table,
    partitions,
    record,
    rejection,
    select_nodes,
    select_partition,
    switches,
    type_of,
)
from fabbench.launchers.slurm.steps import StepResult
from fabbench.model.errors import MachineError
from tests.support.paths import DATA

SAID = json.loads((DATA / "slurm_messages.json").read_text("utf-8"))
"""What Slurm says, and what of it must be in what is said.

A job, nodes (but for the first as AWS writes them).
"""
RUNNING = SAID["job"]
NODES = SAID["nodes"]
PARTITIONS = SAID["partitions"]


def job(**changed: str) -> str:
    """The record of a job that differs in some fields."""
    fields = {**record(RUNNING), **changed}
    return " ".join(f"{name}={value}" for name, value in fields.items())


def test_a_record_is_read_with_its_blanks() -> None:
    fields = record(NODES[0])
    assert fields["Reason"] == "fan broken since May [root@2026-11-21T19:30:00]"
    assert fields["OS"] == "Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0"
    assert (fields["AvailableFeatures"], fields["CfgTRES"]) == ("", "cpu=8,mem=1000M,billing=8")
    assert record("slurm_load_jobs error: Invalid job id specified") == {}


def test_a_job_that_runs() -> None:
    found = job_state(RUNNING)
    assert (found.id, found.state, found.partition, found.nodes) == (
        "4",
        "RUNNING",
        "urgent",
        "node0",
    )
    assert (found.runs, found.pending, found.over, found.status) == (True, False, False, None)


def test_a_job_that_slurm_has_forgotten() -> None:
    assert is_unknown_job(["slurm_load_jobs error: Invalid job id specified"])
    assert not is_unknown_job(
        ["slurm_load_jobs error: Unable to contact slurm controller (connect failure)"]
    )


@pytest.mark.parametrize(("state", "code", "said"), SAID["ended"])
def test_what_ended_a_job_is_reported(state: str, code: str, said: str) -> None:
    why = explain_end(job_state(job(JobState=state, ExitCode=code)), "last words")
    assert why is not None
    assert said in why.text
    assert why.advice


def test_variables_that_sbatch_would_believe_are_known() -> None:
    script = (
        "#!/bin/sh\n#SBATCH --gpus-per-node=8\n#SBATCH --no-requeue\n#SBATCH "
        "--mem=0\n#SBATCH --time=20\n"
    )
    found = {*overruling(script)}
    assert {
        f"SBATCH_{name}" for name in ("GPUS_PER_NODE", "NO_REQUEUE", "MEM_PER_NODE", "TIMELIMIT")
    } <= found
    assert {"SBATCH_REQUEUE", "SBATCH_ARRAY_INX", "SBATCH_EXPORT"} <= found
    assert "SBATCH_PARTITION" not in found
    assert "SBATCH_PARTITION" in overruling(f"{script}#SBATCH --partition=gpu\n")


@pytest.mark.parametrize(("state", "code"), [("COMPLETED", "0:0"), ("FAILED", "4:0")])
def test_a_script_that_came_to_its_end_says_the_rest_itself(state: str, code: str) -> None:
    assert explain_end(job_state(job(JobState=state, ExitCode=code))) is None


@pytest.mark.parametrize(("reason", "final", "said"), SAID["pending"])
def test_why_a_job_waits(reason: str, final: bool, said: str) -> None:
    why = explain_pending(job_state(job(JobState="PENDING", Reason=reason)))
    assert said in why.text
    assert reason in why.text
    assert why.final == final


def test_a_job_whose_nodes_boot() -> None:
    booting = job_state(job(JobState="CONFIGURING"))
    assert booting.pending
    assert "(CONFIGURING)" in explain_pending(booting).text


def test_a_job_in_the_queue_has_a_place_there() -> None:
    waiting = job_state(job(JobState="PENDING", Reason="Priority"))
    found = explain_pending(waiting, 3).text
    assert all(
        part in found for part in ("Job 4", "(Priority)", " 3 waiting jobs ", "2026-11-21T19:29:25")
    )
    unknown = job_state(job(JobState="PENDING", Reason="Resources", StartTime="Unknown"))
    assert explain_pending(unknown).text.endswith("(Resources).")


@pytest.mark.parametrize(("said", "expected"), SAID["refused"])
def test_what_sbatch_refuses_is_explained(said: str, expected: str) -> None:
    error = rejection([f"sbatch: error: Batch job submission failed: {said}"] if said else [])
    assert expected in str(error)
    assert "Batch job" not in str(error)
    assert error.hint


def test_a_machine_without_sbatch() -> None:
    assert "sbatch not found" in str(rejection(["env: 'sbatch': No such file or directory"]))


def test_nodes_and_their_types() -> None:
    drained, mixed, sleeping, deaf = nodes(NODES)
    assert (drained.name, drained.gpus, drained.fit, drained.entry) == ("node1", 8, False, None)
    assert str(drained) == "node1 (drain+idle: fan broken since May [root@2026-11-21T19:30:00])"
    assert [node.fit for node in (mixed, sleeping, deaf)] == [True, True, True]
    assert (gpus_of([mixed, sleeping]), type_of([mixed, sleeping])) == (8, "p5.48xlarge")
    assert (gpus_of([deaf]), type_of([deaf])) == (0, "p5.48xlarge")
    assert type_of([mixed, drained]) == ""


def test_the_partition_is_the_one_named_or_the_default_one() -> None:
    known = partitions(PARTITIONS)
    assert select_partition(known, None).name == "main"
    assert select_partition(known, "gpu").name == "gpu"
    with pytest.raises(MachineError, match=r"nope.*main, gpu, closed"):
        select_partition(known, "nope")
    with pytest.raises(MachineError, match="no default partition"):
        select_partition(known[1:], None)


@pytest.mark.parametrize(("partition", "count", "named", "said"), SAID["too few"])
def test_too_few_nodes_are_refused(partition: str, count: int, named: list[str], said: str) -> None:
    with pytest.raises(MachineError, match=said):
        select_nodes(
            nodes(NODES), select_partition(partitions(PARTITIONS), partition), count, named
        )


def test_a_sweep_takes_idle_nodes_that_are_alike() -> None:
    lines = [f"NodeName=n{number} Gres=gpu:8 State=IDLE Partitions=main" for number in (1, 2, 3)]
    lines += ["NodeName=n4 Gres=gpu:4 State=IDLE Partitions=main", NODES[0], *NODES[1:]]
    lines += ["NodeName=n5 Gres=gpu:8 State=MIXED Partitions=main"]
    assert idle_alike(nodes(lines), partitions(PARTITIONS)[0]) == ("n1", "n2", "n3")
    assert idle_alike(nodes(NODES), partitions(PARTITIONS)[0]) == ()


def test_a_type_that_may_have_fewer_interfaces_is_said_with_its_largest_number() -> None:
    line = "NodeName=n1 Gres=gpu:4 State=IDLE AvailableFeatures=p6e-gb200.36xlarge Partitions=main"
    (node,) = nodes([line])
    checks = {each.name: each for each in check_nodes([node], partitions(PARTITIONS)[0], 1)}
    assert "16 EFA interfaces, 4 GPUs" in checks["instance type"].seen


@pytest.mark.parametrize("number", ["9" * 5000, "\u00b2", "8x8", "N/A", "-1"])
def test_numbers_that_slurm_does_not_print_are_none(number: str) -> None:
    (node,) = nodes([f"NodeName=n1 Gres=gpu:{number} CPUTot={number} State=IDLE"])
    assert (node.gpus, node.cpus) == (8 if number == "8x8" else 0, 0)
    step = StepResult()
    for line in ("#@step 7.0", f"#@exit {number}"):
        assert not step.read_line(line)
    assert (step.step, step.status) == ("7.0", None)


def test_checks_of_nodes() -> None:
    known = partitions(PARTITIONS)
    drained, _, sleeping, deaf = nodes(NODES)
    found = {
        (each.host, each.name): each for each in check_nodes((drained, sleeping, deaf), known[0], 3)
    }
    assert found["node1", "state"].status is Status.FAIL
    assert "fan broken" in found["node1", "state"].seen
    assert found["gpu-dy-p5-2", "state"].status is Status.PASS
    assert "32 EFA interfaces, 8 GPUs" in found["gpu-dy-p5-2", "instance type"].seen
    assert found["node1", "instance type"].status is Status.SKIP
    assert found["ip-10-1-2-3", "GPUs"].status is Status.WARN
    assert "no-gres=true" in found["ip-10-1-2-3", "GPUs"].advice
    assert found["main", "partition"].status is Status.FAIL
    # Of the three only the drained one is in it
    said = "3 nodes requested, but the partition main has 0 that can run jobs. Unavailable: node1 "
    assert found["main", "partition"].seen.startswith(said)


def test_a_node_that_is_silent_for_now_is_waited_for() -> None:
    (node,) = nodes(["NodeName=n1 State=IDLE+NOT_RESPONDING Partitions=main"])
    assert (node.fit, node.idle) == (True, False)
    found = check_nodes([node], partitions(PARTITIONS)[0], 1)
    assert found[0].status is Status.WARN


def test_a_step_that_srun_does_not_try_again_is_a_failure() -> None:
    said = "srun: error: Unable to create step for job 1: "
    assert fatal_message(f"{said}More processors requested than permitted")
    assert fatal_message(f"{said}Job/step already completing or completed") is None


def test_a_slurm_without_pyxis_is_reported() -> None:
    assert fatal_message("srun: unrecognized option '--container-image=docker://ubuntu:24.04'")


def test_nodes_below_their_switch_or_in_their_block() -> None:
    """slurm.conf's topology/tree and topology/block, as scontrol show topology prints them."""
    tree = (
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=node[0-1]",
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=node[2-3]",
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[0-3] Switches=s[0-1]",
    )
    assert switches(tree) == {"node0": "s0", "node1": "s0", "node2": "s1", "node3": "s1"}
    blocks = (
        "BlockName=b1 BlockIndex=0 Nodes=gpu[1-2] BlockSize=2",
        "BlockName=b2 BlockIndex=1 Nodes=gpu3",
    )
    assert switches(blocks) == {"gpu1": "b1", "gpu2": "b1", "gpu3": "b2"}
    assert switches(["No topology information available"]) == {}


def test_nodes_have_the_type_that_their_features_name() -> None:
    typed = SlurmNode(
        name="n1", states=frozenset({"IDLE"}), gpus=8, features=("p5.48xlarge",), cpus=192
    )
    found = nodes_table([typed, SlurmNode(name="n2", partitions=frozenset({"b", "a"}))])
    assert found.table.rows == [
        ("n1", "p5.48xlarge", "8", "32", "192", "-", "idle"),
        ("n2", "-", "0", "-", "0", "a,b", "unknown"),
    ]
