"""What fabbench does with a cluster's API, and so the rights that it needs. The one list of them.

`examples/rbac.yaml` and `examples/rbac-mpijob.yaml` grant these and no others. A right is asked
after with a SelfSubjectAccessReview, which every authenticated user may create (the built-in role
system:basic-user), so it is not one of them.
"""

from dataclasses import dataclass

_CORE = ""
_BATCH = "batch"
_KUBEFLOW = "kubeflow.org"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One verb on one kind of object."""

    verb: str
    resource: str
    """In the plural, as RBAC writes it."""
    why: str
    """What it is for, as the end of "fabbench may not <verb> <resource>: it is needed …"."""
    group: str = _CORE
    """API group; empty for the core."""
    subresource: str = ""
    namespaced: bool = True
    """Whether it is needed in the namespace of the run only. Else in the whole cluster."""
    optional: bool = False
    """Whether a run works without it, and only knows less."""

    @property
    def full_resource(self) -> str:
        """Resource and subresource as RBAC writes them: pods/exec."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        """Name it as kubectl auth can-i does: create jobs.batch."""
        return f"{self.verb} {self.full_resource}{'.' + self.group if self.group else ''}"


def _each(verbs: str, resource: str, why: str, *, group: str = _CORE, sub: str = "") -> tuple[Right, ...]:
    return tuple(
        Right(verb=verb, resource=resource, subresource=sub, group=group, why=why) for verb in verbs.split()
    )


_NODES = (
    Right(verb="get", resource="nodes", namespaced=False, why="to read what a chosen node has"),
    Right(verb="list", resource="nodes", namespaced=False, why="to choose nodes by what they have"),
    Right(
        verb="list",
        resource="pods",
        namespaced=False,
        optional=True,
        why="to know what pods of other namespaces leave free on a node",
    ),
)

RIGHTS: tuple[Right, ...] = (
    *_each("create", "jobs", "to start the pods of a run", group=_BATCH),
    *_each("get list watch", "jobs", "to follow a run, and to find what an earlier one left", group=_BATCH),
    *_each("patch", "jobs", "to move the end of a run on for as long as fabbench is there", group=_BATCH),
    *_each("delete", "jobs", "to remove the pods at the end", group=_BATCH),
    *_each("get list watch", "pods", "to see where pods run and what became of them"),
    Right(
        verb="delete", resource="pods", optional=True, why="to have clean --force forget pods of lost nodes"
    ),
    *_each("create", "pods", "to start programs in pods", sub="exec"),
    *_each("get", "pods", "to start programs in pods, over WebSocket", sub="exec"),
    *_each("get", "pods", "to read what a pod printed before it ended", sub="log"),
    *_each("create", "services", "to give pods names that they find each other by"),
    *_each("get list", "services", "to find what an earlier run left"),
    *_each("delete", "services", "to remove them at the end"),
    *_each("create", "secrets", "to hand pods the ssh key of the run"),
    *_each("get list", "secrets", "to find what an earlier run left"),
    *_each("delete", "secrets", "to remove the key at the end"),
    *_each("list watch", "events", "to explain pods that do not start"),
    *_NODES,
)
"""For ``--on kubernetes``, in the order in which they are asked after."""

MPIJOB: tuple[Right, ...] = (
    *_each("create", "mpijobs", "to hand over a run", group=_KUBEFLOW),
    *_each("get list", "mpijobs", "to see what became of it, and what an earlier one left", group=_KUBEFLOW),
    *_each("delete", "mpijobs", "to remove it at the end", group=_KUBEFLOW),
    *_each("get list watch", "pods", "to see where pods run and what became of them"),
    *_each("get", "pods", "to follow the launcher", sub="log"),
    *_each("list", "events", "to explain pods that do not start"),
    *_NODES,
)
"""For ``--on mpijob``: the operator makes pods, and everything else."""
