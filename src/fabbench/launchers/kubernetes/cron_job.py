"""A CronJob that starts an Indexed Job on a schedule, and a container that writes what it measured. Pure."""

import shlex
from typing import TYPE_CHECKING

from fabbench.launchers.kubernetes.manifests import RUN, RunSpec, indexed_job
from fabbench.launchers.pod_options import Object

if TYPE_CHECKING:
    from fabbench.plan.request import RunRequest

RESULTS = "/results"
"""Where the containers of a pod share its log."""
_NAME = "batch.kubernetes.io/job-name"
_LOST_S = 3600
"""A start that was missed by more than this is left out."""
_SHARED = f"""\
exec > >(tee {RESULTS}/log) 2>&1 && tee=$! # for the container that writes metrics
trap 'end; exec >&- 2>&-; wait "$tee"; touch {RESULTS}/done' EXIT
"""
_STALE = """\
[ "$JOB_COMPLETION_INDEX" = 0 ] || rm -f /metrics/@FILE@ # of a night when this node was the first
"""
_METRICS = f"""\
[ "$JOB_COMPLETION_INDEX" = 0 ] || exit 0
until [ -e {RESULTS}/done ]; do sleep 1; done
cd /metrics || exit
fabbench compare {RESULTS}/log --format openmetrics@GATES@ >.@FILE@
status=$?
[ -s .@FILE@ ] || echo "fabbench_exit_status $status" >.@FILE@ # nothing was measured
mv .@FILE@ @FILE@ # whole, or not at all
exit "$status"
"""


def host_names(spec: RunSpec, *, scheduled: bool) -> str:
    """Return the pods' names as words of a shell. The name of a scheduled Job is known when it starts."""
    job = '"$JOB_NAME"' if scheduled else spec.name
    return " ".join(f"{job}-{number}.{spec.name}" for number in range(spec.count))


def around(start: str, spec: RunSpec, *, metrics: bool) -> str:
    """Return the beginning of the script, which shares the first pod's log where `metrics` are written."""
    return f"{_STALE.replace('@FILE@', _file(spec))}{start}{_SHARED}" if metrics else start


def _file(spec: RunSpec) -> str:
    return f"{spec.name}.prom"


def cron_job(spec: RunSpec, script: str, schedule: str) -> tuple[Object, ...]:
    """Return the CronJob of an Indexed Job, and its Service. Two Jobs never measure at the same time."""
    service, job = indexed_job(spec, script, {RUN: spec.run})
    pods = job["spec"]["template"]["spec"]
    (container,) = pods["containers"]
    name = {"name": "JOB_NAME", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{_NAME}']"}}}
    run = {key: container.pop(key) for key in ("command", "args")}
    pods["containers"] = [{**container, "env": [*container.get("env", ()), name], **run}]
    made: Object = {
        "schedule": schedule,
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": _LOST_S,
        "jobTemplate": {"spec": job["spec"]},
    }
    return (service, {**job, "kind": "CronJob", "spec": made})


def gate_words(request: "RunRequest") -> str:
    """Return the gates of a request as words of a shell, with a space before each."""
    words = [word for gate in request.gates for word in ("--gate", gate)]
    return "".join(f" {shlex.quote(word)}" for word in (*words, *(["--strict"] if request.strict else [])))


def add_metrics(pods: Object, spec: RunSpec, *, image: str, folder: str, gates: str = "") -> None:
    """Add a container to the template of pods that writes the first pod's results to `folder` of its node.

    It evaluates `gates`, too: the Job fails where one fails.
    """
    inner = pods["spec"]
    (container,) = inner["containers"]
    mounts: list[Object] = [
        {"name": "results", "mountPath": RESULTS},
        {"name": "metrics", "mountPath": "/metrics"},
    ]
    container["volumeMounts"] += [{**each} for each in mounts]
    inner["volumes"] += [
        {"name": "results", "emptyDir": {}},
        {"name": "metrics", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}},
    ]
    inner["containers"].append(
        {
            "name": "metrics",
            "image": image,
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
            "volumeMounts": mounts,
            "command": ["/bin/sh", "-c"],
            "args": [_METRICS.replace("@FILE@", _file(spec)).replace("@GATES@", gates)],
        }
    )
