"""What sbatch says where it does not take a job. Pure. The words are those of Slurm's slurm_errno.c."""

from collections.abc import Sequence

from fabbench.errors import MachineError
from fabbench.pods.explanation import brief, first, words

_TABLE = (
    words(
        r"invalid partition",
        "partition",
        "There is no such partition: {said}.",
        "sinfo lists them; name one with --partition.",
    ),
    words(
        r"account/partition combination|invalid account|AccountNotAllowed",
        "account",
        "The account may not be charged for this: {said}.",
        "Name another with --account or --partition: sacctmgr show assoc user=$USER lists yours.",
    ),
    words(r"invalid qos|QOS", "qos", "The quality of service is not for this: {said}.", "See --qos."),
    words(
        r"reservation",
        "reservation",
        "The reservation is not for this: {said}.",
        "scontrol show reservation lists them.",
    ),
    words(
        r"generic resource|gres|gpus",
        "gres",
        "The nodes do not have the GPUs that are asked for: {said}.",
        "--no-gres asks for none, where Slurm does not count them.",
    ),
    words(
        r"node configuration is not available|node count|More processors|invalid feature|constraint",
        "nodes",
        "No node has what is asked for: {said}.",
        "See --nodes, --gpus and --constraint. --no-gres asks for no GPUs, where Slurm does not count them.",
    ),
    words(
        r"time limit", "time", "The time limit is too long: {said}.", "Give a shorter one with --time."
    ),
    words(
        r"Unable to contact slurm|Socket timed out|Connection refused",
        "controller",
        "Slurm's controller does not answer: {said}.",
        "Try again later.",
    ),
    words(r"not found|No such file", "sbatch", "There is no sbatch: {said}.", "Name a login node: --login."),
    words(r".*", "refused", "{said}.", "See sbatch's words."),
)  # fmt: skip

_FAILED = "Batch job submission failed: "


def refused(said: Sequence[str]) -> MachineError:
    """Give the error for a job that was not taken."""
    words = (line.removeprefix("sbatch: ").removeprefix("error: ").removeprefix(_FAILED) for line in said)
    text = "; ".join(dict.fromkeys(word.strip() for word in words if word.strip()))
    found = first(_TABLE, brief(text) or "it said nothing")
    assert found is not None  # noqa: S101 - the last entry fits everything
    return MachineError(f"sbatch took no job. {found.text}", hint=found.advice)
