"""Why a job does not start, and whether it ever can. Pure.

Reasons: squeue(1), "JOB REASON CODES", and Slurm's src/common/job_state_reason.c.
"""

from fabbench.pods.explanation import Explanation, Words, brief, words
from fabbench.slurm.jobs import JobState

_ANOTHER = "Name another with --partition, or ask whoever runs the cluster."
_LESS = "Ask for less (--nodes, --time), or for another --partition or --qos."
_HELD = "See the logs of slurmctld and slurmd, and scontrol show node."
_ENDED = "It starts when other jobs of it have ended; never where it asks for more than the limit itself."
_TABLE = (
    words(
        r"^PartitionConfig$",
        "partition",
        "The partition {partition} cannot give it what it asks for",
        "It has fewer nodes, or less on them or less time than asked for: see scontrol show partition.",
    ),
    words(r"^PartitionNodeLimit$", "nodes", "It asks for more nodes than {partition} gives a job", _LESS),
    words(r"^PartitionTimeLimit$", "time", "It asks for more time than {partition} gives a job", _LESS),
    words(r"^Partition(Down|Inactive)$", "partition", "The partition {partition} takes no jobs", _ANOTHER),
    words(
        r"JobHoldMaxRequeue|launch.?fail|requeued.(in.)?held",
        "held",
        "Slurm holds it, as it could not be started or was requeued too often",
        _HELD,
    ),
    words(r"^JobHeldUser", "held", "It is held", "scontrol release {job} lets it go.", final=False),
    words(
        r"^JobHeld",
        "held",
        "Whoever runs the cluster holds it",
        "Ask them; scontrol release lets it go.",
        final=False,
    ),
    words(
        r"^DependencyNeverSatisfied$",
        "dependency",
        "It can never start: the job that it was to follow did not end as it should",
        "Name another, or none: --sbatch-option dependency.",
    ),
    words(
        r"^DeadLine$|^BadConstraints$|^InvalidAccount$|^InvalidQOS$|AccountNotAllowed|"
        r"QOSNotAllowed|^FedJobLock$",
        "refused",
        "It can never start",
        "See --constraint, --account and --qos.",
    ),
    words(
        r"(QOS|Assoc)\w*(Per(Job|Node)|WallDurationPerJob)\w*|MaxWallDurationPerJobLimit|^MaxMemPerLimit$",
        "limit",
        "A limit on single jobs is in its way",
        _LESS,
    ),
    words(r"^QOSMin\w+", "limit", "It asks for less than its quality of service wants", "See --qos."),
    words(
        r"^(QOS|Assoc)Grp\w*((?<!Run)Minutes|Wall)|^QOSUsageThreshold",
        "budget",
        "What its account or quality of service may use is used up",
        "sacctmgr show assoc and sacctmgr show qos tell the limits; name another with --account or --qos.",
        final=False,
    ),
    words(
        r"^ReqNodeNotAvail|Nodes.required.for.job.are.DOWN|NodeDown",
        "nodes",
        "Nodes that it needs are down, drained or reserved",
        "sinfo -R says why; it starts when they are back.",
        final=False,
    ),
    words(
        r"^(QOS|Assoc)\w+|^Max\w+PerAccount|^AccountingPolicy",
        "limit",
        "A limit of the account or the quality of service is in its way for now",
        _ENDED,
        final=False,
    ),
    words(
        r"^Reservation", "reservation", "Its reservation has not begun, or is gone", "See scontrol show res.",
        final=False,
    ),
    words(
        r"^(Resources|Priority)$",
        "queue",
        "It waits for nodes that other jobs have",
        "Ctrl-C cancels it.",
        final=False,
    ),
    words(r"^Dependency$", "dependency", "It waits for another job", "See squeue.", final=False),
    words(
        r"^Licenses",
        "licences",
        "It waits for licences that other jobs have",
        "scontrol show licenses counts them.",
        final=False,
    ),
    words(r"^BeginTime$", "begin", "Slurm lets it wait for some time", "It starts then.", final=False),
    words(r"^CONFIGURING$", "booting", "Its nodes boot", "It starts when they are up.", final=False),
    words(r".", "waiting", "It waits", "See squeue.", final=False),
)  # fmt: skip


def explain_pending(job: JobState, position: int | None = None) -> Explanation:
    """Say why a job waits. `position` counts the waiting jobs before it, where that is known."""
    reason = job.reason or job.state
    entry = next((entry for entry in _TABLE if entry.pattern.search(reason)), _TABLE[-1])
    text = entry.text.format(partition=job.partition or "?")
    return Explanation(
        code=entry.code,
        text=f"Job {job.id}: {text} ({brief(reason)}).{_queue(job, position, entry)}",
        advice=entry.advice.format(job=job.id),
        final=entry.final,
    )


def _queue(job: JobState, position: int | None, entry: Words) -> str:
    if entry.code != "queue":
        return ""
    told = []
    if position is not None:
        told.append(f"{position} waiting job{'' if position == 1 else 's'} come before it")
    if job.start:
        told.append(f"Slurm expects it to start at {job.start}")
    return f" {', and '.join(told)}." if told else ""
