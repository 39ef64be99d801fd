"""The launcher ``kubernetes``: pods on nodes of a cluster, which needs nothing installed."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple, Self

from fabbench.catalog.kubernetes_resources import PodResources, override_resources
from fabbench.execution.waiting import moments
from fabbench.execution.worker_pool import Results, map_hosts, require_all, succeeded
from fabbench.hosts.check import Check, HostRelations, Progress
from fabbench.hosts.discover import arguments_for, inventories
from fabbench.hosts.probe_result import Probe, Probes
from fabbench.launchers import LABEL, Allocation, Examined, Launcher, Leftovers, notify
from fabbench.launchers.kubernetes import ClusterPodOptions, KubernetesOptions
from fabbench.launchers.kubernetes.api import KubernetesApi, PodConnection, retry
from fabbench.launchers.kubernetes.checks import check_nodes, nodes_table, rights_for
from fabbench.launchers.kubernetes.discover import (
    USING_NODES,
    api_of,
    check_pod,
    criteria_of,
    list_nodes,
    notify_undeclared,
    pod_inventory,
    reject_profile_conflicts,
    require_claims,
    require_rights,
)
from fabbench.launchers.kubernetes.explain import OOM_COUNTERS, explain_killed
from fabbench.launchers.kubernetes.manifests import (
    ROLE,
    RUN,
    SELECTOR,
    WORKER,
    RunSpec,
    workload,
)
from fabbench.launchers.kubernetes.nodes import Nodes, name_of, node_of, spec_of, values_of_label
from fabbench.launchers.kubernetes.objects import JobRun, find_leftovers, remove_leftovers
from fabbench.launchers.kubernetes.select_nodes import (
    check_choice,
    choose,
    matching_nodes,
    resources_on,
    usable_groups,
)
from fabbench.launchers.pod_options import Objects, yaml_documents
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.fabrics import may_use_rdma
from fabbench.model.hosts import Host, Hosts, Inventory, Needs, Target
from fabbench.model.log import ExecutionLines
from fabbench.model.mappings import Documents, GroupOfNode, HostLines, distinct
from fabbench.model.plan import Execution, Variant
from fabbench.remote.allocation import hold, probe
from fabbench.remote.check_hosts import ProbedHost, host_relations, probe_in_shell, try_to_open
from fabbench.remote.host import RemoteHost
from fabbench.remote.session import RemoteAllocation
from fabbench.remote.transport import LostError

Start = Callable[[Target], AbstractContextManager[Allocation]]  # Starts and probes pods
_LOOK_S = 2.0  # Between two looks at pods that are waited for
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
# RDMA devices, which all pods of a node may see, else a sign of the pod's own interfaces
_LIST_NICS = ("sh", "-c", "ls /sys/class/infiniband/ | grep . || readlink /proc/self/ns/net")


class PodVariant(NamedTuple):
    """The properties of a variant that are fixed when its pods start."""

    image: str = ""  # Empty: the target's image
    host_network: bool = False

    @classmethod
    def of(cls, variant: Variant, target: Target) -> Self:
        """Return the kind of pods that a variant needs."""
        if variant.host_network is not None:
            return cls(variant.image, variant.host_network)
        return cls(variant.image, target.options_as(ClusterPodOptions).host_network)


@contextmanager
def switching_pods(target: Target, start: Start) -> Iterator[Allocation]:
    """Yield pods that are replaced where a configuration's variant needs another kind.

    A kind of pods has one image, and one sort of network: its own, or that of the node.
    What each variant sees is known before anything is measured: pods of each kind start once, and
    all of their inventories become one.
    """
    kind_of_each = [PodVariant.of(variant, target) for variant in target.variants]
    kinds = distinct(kind_of_each)
    if len(kinds) <= 1:  # nothing to replace
        with start(_for_variant(target, kinds[0]) if kinds else target) as allocation:
            yield allocation
        return
    with ExitStack() as stack:
        pods = _SwitchingPods(target, start, stack)
        # Start the kind of the first execution last: its pods then need not be replaced.
        inventory_of_kind = {kind: pods.ensure_pods(kind).inventory for kind in reversed(kinds)}
        hosts_of_variant: dict[str, Hosts] = {}
        default_image = ""  # Stays so if every variant has its own
        for kind in kinds:
            hosts_of_variant |= inventory_of_kind[kind].variants
            if not kind.image:
                default_image = inventory_of_kind[kind].image
        in_order = {variant.name: hosts_of_variant[variant.name] for variant in target.variants}
        first = inventory_of_kind[kinds[0]]
        pods.inventory = replace(first, image=default_image, variants=in_order)
        yield pods


class _SwitchingPods:
    """Pods whose kind changes, as an `Allocation`."""

    def __init__(self, target: Target, start: Start, stack: ExitStack) -> None:
        """Leaving `stack` ends the pods that exist then."""
        # Until pods of each kind have been probed
        self.inventory = Inventory(target=target.name, hosts=())
        self._kinds = {variant.name: PodVariant.of(variant, target) for variant in target.variants}
        self._target = target
        self._start = start
        self._stack = stack
        self._kind: PodVariant | None = None  # Of the pods that run now
        self._allocation: Allocation | None = None  # These pods; None: none run

    def ensure_pods(self, kind: PodVariant) -> Allocation:
        """Return running pods of a kind, which replace those of another kind."""
        if self._allocation is None or kind != self._kind:
            self._allocation = None
            self._stack.close()  # ends the pods of the other kind
            starting = self._start(_for_variant(self._target, kind))
            self._allocation = self._stack.enter_context(starting)
            self._kind = kind
        return self._allocation

    @property
    def documents(self) -> Documents:
        return self._allocation.documents if self._allocation else {}

    def execute(self, execution: Execution) -> ExecutionLines:
        kind = self._kinds[execution.configuration.variant]
        return self.ensure_pods(kind).execute(execution)

    def counters(self) -> HostLines:
        return self._allocation.counters() if self._allocation else {}


def _for_variant(target: Target, kind: PodVariant) -> Target:
    """Return the target with only the variants whose pods are of one kind."""
    options = target.options_as(ClusterPodOptions)
    variants = tuple(
        variant for variant in target.variants if PodVariant.of(variant, target) == kind
    )
    options = replace(options, image=kind.image or options.image, host_network=kind.host_network)
    return replace(target, options=options, variants=variants)


class KubernetesLauncher(Launcher):
    """The launcher ``kubernetes``. Others override the objects, and what they need of a cluster."""

    name = "kubernetes"
    groups_by = (LABEL,)
    options: type[ClusterPodOptions] = KubernetesOptions
    rights_example = "examples/rbac.yaml"  # What grants what a run needs
    workload = staticmethod(workload)
    """The objects of a run in order of creation: the first owns the others."""
    inherits = True
    has_deep_check = True
    deep_before_tests = True
    switches_networks = True

    @contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[Allocation]:
        """Choose nodes, start a pod on each, and probe them. Leaving it leaves nothing there."""
        target = _with_profile(target)
        options = target.options_as(ClusterPodOptions)
        api = api_of(target)
        self.require(api, options)
        self._require_rights(api, options)
        criteria = criteria_of(target, needs)
        all_nodes = list_nodes(api, notify, labels=criteria.labels)
        chosen = choose(all_nodes, criteria)
        if criteria.takes_all and len(chosen) < len(all_nodes):
            notify(
                f"{len(chosen)} of {len(all_nodes)} nodes are free and alike, and are tested: see "
                "fabbench check."
            )
        notify_undeclared(options, chosen)

        def start(narrowed: Target) -> AbstractContextManager[Allocation]:
            return self._running_pods(narrowed, needs, api, all_nodes, chosen)

        with switching_pods(target, start) as allocation:
            yield allocation

    def require(self, api: KubernetesApi, options: ClusterPodOptions) -> None:
        """Raise MachineError for what the cluster lacks."""
        require_claims(api, options)

    def cluster_checks(self, api: KubernetesApi, options: ClusterPodOptions) -> tuple[Check, ...]:
        """Check what else the cluster needs."""
        del api, options
        return ()

    def _require_rights(self, api: KubernetesApi, options: ClusterPodOptions) -> None:
        claims = ("claims",) if options.claims_devices else ()
        require_rights(api, rights_for(self.name, *claims), self.rights_example)

    @override
    def preview(self, target: Target, needs: Needs) -> Inventory:
        # The nodes that a run would choose now, described by what pods would request of them.
        target = _with_profile(target)
        api = api_of(target)
        options = target.options_as(ClusterPodOptions)
        criteria = criteria_of(target, needs)
        chosen = choose(list_nodes(api, notify, labels=criteria.labels), criteria)
        amounts = _resources(options, needs, chosen).texts()
        instance_type = chosen[0].entry.name if chosen[0].entry else ""
        inventory = pod_inventory(target, needs, instance_type, len(chosen), amounts)
        return inventory.named([node.name for node in chosen])

    @override
    def node_groups(self, target: Target, nodes: Sequence[str], by: str) -> GroupOfNode:
        return values_of_label(api_of(target).objects("Node"), nodes, by.removeprefix(LABEL))

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Check the cluster's nodes; with `deep`, also probe a pod on each free node.

        Pods are probed group by group: nodes of a group are alike, and those pods connect to each
        other.
        """
        target = _with_profile(target)
        api = api_of(target)
        options = target.options_as(ClusterPodOptions)
        progress("reading the nodes", 0, 1)  # none done, of one step
        criteria = criteria_of(target, needs)
        all_nodes = list_nodes(api, labels=criteria.labels)
        any_kind = replace(criteria, needs_gpu=False)  # nodes without GPUs are checked, too
        shown = matching_nodes(all_nodes, any_kind)
        checks = (
            *check_nodes(shown, criteria.tolerations),
            check_choice(all_nodes, criteria).of(api.context, "nodes for a run"),
        )
        checks += self.cluster_checks(api, options)
        overviews = (nodes_table(shown),) if shown else ()
        if not deep:
            return Examined(
                probes={}, relations=HostRelations(), checks=checks, overviews=overviews
            )
        self.require(api, options)
        self._require_rights(api, options)
        progress("probing pods", 0, 1)
        results: dict[str, ProbedHost | MachineError] = {}
        relations = HostRelations()
        # With --nodes the pods that a run would start, else one on every node that is free.
        groups = (
            (choose(all_nodes, criteria),) if criteria.count else usable_groups(all_nodes, any_kind)
        )
        for nodes in groups:
            of_group, related = self._probe_pods(api, target, needs, nodes)
            results |= of_group
            relations = HostRelations(
                addresses={**relations.addresses, **related.addresses},
                connections={**relations.connections, **related.connections},
                openings={**relations.openings, **related.openings},
                clocks={**relations.clocks, **related.clocks},
            )
        probes = {name: probed.probe for name, probed in succeeded(results).items()}
        pod_checks = (check_pod(name, result) for name, result in results.items())
        checks = (*checks, *pod_checks)
        return Examined(probes=probes, relations=relations, checks=checks, overviews=overviews)

    def _probe_pods(
        self, api: KubernetesApi, target: Target, needs: Needs, nodes: Nodes
    ) -> tuple[Results[ProbedHost], HostRelations]:
        """Probe a pod on each of nodes that are alike, and have these connect to each other.

        An error of all, such as pods that do not start, is that of each node without a result.
        """
        options = target.options_as(ClusterPodOptions)
        arguments = arguments_for(target, needs)
        # GPUs, too, whatever the benchmark needs: the probe reports on all of a node
        resources = resources_on(nodes, gpus=True, declared=options.profile)
        spec = _spec(target, needs, resources, nodes)
        results: dict[str, ProbedHost | MachineError] = {}
        relations = HostRelations()
        try:
            with JobRun(api, spec, self.workload(spec)) as job_run, ExitStack() as stack:
                pods = job_run.connections(job_run.wait(options.start_timeout, nodes))
                for pod in pods.values():
                    stack.callback(pod.close)
                results |= map_hosts(
                    pods, lambda pod: probe_in_shell(pod, f"The pod {pod.name}", arguments)
                )
                if answered := succeeded(results):
                    openings = try_to_open({name: pods[name] for name in answered})
                    relations = replace(host_relations(target, answered), openings=openings)
        except MachineError as error:
            results = {**{node.name: error for node in nodes}, **results}
        return results, relations

    @override
    @contextmanager
    def connections(self, target: Target, wait_s: float) -> Iterator[Mapping[str, PodConnection]]:
        """Reach the first container of running pods with some labels: `NODE/POD` → it."""
        labels = target.options_as(ClusterPodOptions).pod
        if not labels or target.hosts:
            raise RequestError("Pass --pod, labels of the pods to watch, and no nodes.")
        api = api_of(target)
        pods: dict[str, PodConnection] = {}
        with ExitStack() as closing:
            for pod in _running_pods_with(labels, api, wait_s):
                container = spec_of(pod)["containers"][0]["name"]
                connection = PodConnection(api, name_of(pod), container)
                closing.callback(connection.close)
                pods[f"{node_of(pod)}/{connection.name}"] = connection
            # Of those on one node that see the same NICs, the last: else they would count twice
            pod_that_sees: dict[tuple[str, str], str] = {}
            for name, nics in map_hosts(pods, _nics_of).items():
                node, _, _ = name.partition("/")
                pod_that_sees[node, str(nics)] = name
            yield {name: pods[name] for name in pod_that_sees.values()}

    @override
    @contextmanager
    def leftovers(self, target: Target, *, everywhere: bool, force: bool) -> Iterator[Leftovers]:
        api = api_of(target)
        where = "any namespace" if everywhere else f"namespace {api.namespace}"
        yield Leftovers(
            where=f"{where} of {api.context}",
            column="NAMESPACE",
            found=find_leftovers(api, everywhere=everywhere),
            remove=lambda chosen: remove_leftovers(api, chosen, everywhere=everywhere, force=force),
        )

    @contextmanager
    def _running_pods(
        self,
        target: Target,
        needs: Needs,
        api: KubernetesApi,
        all_nodes: Nodes,
        chosen: Nodes,
    ) -> Iterator[RemoteAllocation]:
        """Start a pod of one image on each of the chosen nodes, and probe them.

        Each variant is probed in these pods with its own view of the target. All nodes of the
        cluster explain why pods do not start.
        """
        options = target.options_as(ClusterPodOptions)
        resources = _resources(options, needs, chosen)
        spec = _spec(target, needs, resources, chosen)
        objects = self.workload(spec)
        with JobRun(api, spec, objects) as job_run:
            pods = job_run.wait(options.start_timeout, all_nodes)
            by_name = job_run.connections(pods)
            # Fabric → variables that the platform sets for NCCL on it
            settings = options.profile.settings if options.profile else {}

            def probe_pod(pod: PodConnection, view: Target, variant: Variant) -> Probe:
                return retry(partial(probe, pod, view, needs, variant), LostError)

            def probe_all(view: Target, variant: Variant) -> Probes:
                return require_all(map_hosts(by_name, lambda pod: probe_pod(pod, view, variant)))

            def with_settings(hosts: Sequence[Host]) -> Hosts:
                return tuple(replace(host, settings=settings) for host in hosts)

            gpus = target.gpus
            if gpus is None and resources.gpus:
                gpus = resources.gpus  # as many as the pods request
            inventory = inventories(replace(target, gpus=gpus), needs, probe_all)
            inventory = replace(inventory.changed(with_settings), image=spec.image)
            with (
                hold(inventory, by_name, needs, lost_after_s=options.lost_after) as allocation,
                _report_oom_kills(allocation.remotes, pods),
            ):
                document = yaml_documents(objects, "What fabbench created.")
                yield replace(
                    allocation,
                    documents={f"{self.name}.yaml": document},
                    look=partial(_note_others, api, spec.run, allocation.machines),
                )


LAUNCHER = KubernetesLauncher()


def _nics_of(pod: PodConnection) -> str:
    return " ".join(pod.run(_LIST_NICS).out)


def _running_pods_with(labels: str, api: KubernetesApi, wait_s: float) -> Objects:
    """Return the running pods with some labels; wait until all run, but not longer than `wait_s`.

    Raise MachineError if none runs.
    """
    running: Objects = ()
    tell_once = cache(notify)
    for _ in moments(wait_s, _LOOK_S):
        pods = [*api.objects("Pod", labels=labels, fields=_NOT_ENDED)]
        running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        if running and len(running) == len(pods):
            return running
        tell_once(f"Pods with {labels} that run: {len(running)} of {len(pods)}.")
    if not running:
        raise MachineError(
            f"No pod with {labels} runs in {api.namespace}; see --namespace.",
            hint="For pods that start later, pass --wait, such as --wait 10m.",
        )
    return running


def _with_profile(target: Target) -> Target:
    """Return the target with the network that its profile requires. Raise RequestError."""
    options = target.options_as(ClusterPodOptions)
    reject_profile_conflicts(options, nodes_seen=True)
    return replace(target, options=replace(options, host_network=options.on_host_network))


def _resources(options: ClusterPodOptions, needs: Needs, chosen: Nodes) -> PodResources:
    """Return what each pod requests: what is free on the nodes, or what the user says instead."""
    resources = resources_on(chosen, gpus=needs.mpi, declared=options.profile)
    return override_resources(resources, options.pod_requests)


def _spec(target: Target, needs: Needs, resources: PodResources, chosen: Nodes) -> RunSpec:
    options = target.options_as(ClusterPodOptions)
    return RunSpec(
        run=secrets.token_hex(4),
        count=len(chosen),
        resources=resources,
        deadline_s=options.lease,  # the heartbeat extends it
        lease_s=options.lease,
        image=options.image,
        claim=options.resource_claim,
        hostnames=tuple(node.hostname for node in chosen),
        arch=chosen[0].arch,  # The chosen nodes are alike
        host_network=options.host_network,
        rdma=may_use_rdma(needs.fabrics),
        user=options.run_as_user,
        options=options,
        independent=needs.divided,  # a test that fails must not end the others
    )


@contextmanager
def _report_oom_kills(remotes: Sequence[RemoteHost], pods: Objects) -> Iterator[None]:
    """On exit, report in which pods programs were OOM-killed: nothing else does."""
    before = _oom_counters(remotes)
    yield
    after = _oom_counters(remotes)
    for pod in pods:
        node = node_of(pod)
        if node not in before or node not in after:
            continue
        if why := explain_killed(pod, before[node], after[node]):
            notify(str(why))


def _note_others(api: KubernetesApi, run: str, machines: Sequence[RemoteHost]) -> None:
    """Note the pods of other runs on the nodes of these pods, which see only their own."""
    others = f"{SELECTOR},{RUN}!={run},{ROLE}={WORKER}"
    on_node = {machine.name: machine for machine in machines}
    for everywhere in (False, True):  # users may see other namespaces, or not
        with suppress(MachineError):  # it spoils no execution
            for pod in api.objects("Pod", labels=others, fields=USING_NODES, everywhere=everywhere):
                if machine := on_node.get(node_of(pod)):
                    machine.note_other(name_of(pod))


def _oom_counters(remotes: Sequence[RemoteHost]) -> dict[str, str]:
    """Return the contents of `OOM_COUNTERS`, by node, in the pods that answer."""

    def read(remote: RemoteHost) -> str:
        done = remote.connection.run(("cat", *OOM_COUNTERS))
        return "\n".join(done.out)

    reached = {remote.name: remote for remote in remotes if remote.lost is None}
    return succeeded(map_hosts(reached, read))
