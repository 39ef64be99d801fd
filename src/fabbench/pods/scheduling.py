"""Why the scheduler finds no node for a pod, from its message and from what the nodes have. Pure.

Wordings: k8s.io/kubernetes/pkg/scheduler/framework (``0/3 nodes are available: 1 Insufficient cpu, …``).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabbench.pods.explanation import Explanation, brief, first, words
from fabbench.pods.nodes import Amount, Node, natural, requests
from fabbench.pods.profiles import GPU, HUGE_PAGES, profile_for

_AVAILABLE = re.compile(r"(?P<none>\d+)/(?P<all>\d+) nodes are available: (?P<reasons>.*)", re.DOTALL)
_REASON = re.compile(r"(?P<count>\d+) (?P<what>.+?)(?=, \d+ |$)", re.DOTALL)
_TAINT = re.compile(r"\{([^{}]*)\}")
_NAMED = 4
_KEPT_AWAY = (
    words(
        r"anti-affinity",
        "too-few-nodes",
        "",
        "Each pod takes a node alone: ask for fewer nodes, or wait until another pod of this run is gone.",
    ),
    words(
        r"free ports", "port", "", "With --host-network one pod can have the port: wait for the other to end."
    ),
    words(
        r"node\.kubernetes\.io/unschedulable|were unschedulable",
        "cordoned",
        "",
        "Uncordon the nodes, or name others.",
    ),
    words(
        r"node\.kubernetes\.io/|sagemaker\.amazonaws\.com/",
        "node-lost",
        "",
        "See the nodes (kubectl describe node): they are not ready, or short of something.",
    ),
    words(r"taint", "taints", "", "fabbench check lists the taints: tolerate them, or name other nodes."),
)
_CONDITIONS = ("node.kubernetes.io/", "sagemaker.amazonaws.com/")
"""Taints of nodes that are not well: nobody should tolerate them."""
_SCALED_DOWN = "no nodes available to schedule pods"


def explain_scheduling(pod: Mapping[str, Any], said: str, nodes: Sequence[Node] = ()) -> Explanation | None:
    """Explain a message of the scheduler. `nodes` are those of the cluster, with what is free there."""
    name = (pod.get("metadata") or {}).get("name", "")
    if _SCALED_DOWN in said:
        text = f"The pod {name} finds no node: the cluster has none."
        return Explanation(
            code="no-node", text=text, advice="Add nodes, or wait for the autoscaler.", final=False
        )
    reasons = list(_reasons(said))
    if not reasons:
        return None
    lacking = [what.removeprefix("Insufficient ") for _, what in reasons if what.startswith("Insufficient ")]
    if lacking:
        return _insufficient(pod, sorted(lacking, key=_weight), reasons, nodes)
    return _kept_away(name, reasons)


def _reasons(said: str) -> Iterator[tuple[int, str]]:
    """Give how many nodes are out of the question for each reason."""
    match = _AVAILABLE.search(said)
    if match is None:
        return
    text = re.split(r"\.? preemption: |\. ", match["reasons"], maxsplit=1)[0].strip().rstrip(".")
    for reason in _REASON.finditer(text):
        yield int(reason["count"]), reason["what"].strip()


def _weight(resource: str) -> tuple[int, str]:
    """Order resources: the fabric first, then GPUs."""
    return (0 if profile_for(resource) else 1 if resource == GPU else 2, resource)


def _insufficient(
    pod: Mapping[str, Any], lacking: Sequence[str], reasons: Sequence[tuple[int, str]], nodes: Sequence[Node]
) -> Explanation:
    meta, asked = pod.get("metadata") or {}, requests(pod)
    where = _candidates(pod, nodes)
    texts, final = [], False
    for resource in lacking:
        wanted = asked.get(resource, 0)
        amounts = {node.name: _amount(node, resource) for node in where}
        most = max((amount.allocatable for amount in amounts.values()), default=0)
        final = final or bool(where and wanted > most)
        texts.append(_sentence(resource, wanted, amounts, reasons))
    advice = "Other pods have them: wait until they end, or name other nodes."
    if final:
        advice = "No node has as many: name other nodes or another type, or see that the device plugin runs."
    text = f"The pod {meta.get('name', '')} waits. {' '.join(texts)}"
    return Explanation(code="insufficient", text=text, advice=advice, final=final)


def _sentence(
    resource: str, wanted: int, amounts: Mapping[str, Amount], reasons: Sequence[tuple[int, str]]
) -> str:
    begun = f"{resource}: {_written(resource, wanted)} asked"
    if not amounts:
        count = next(count for count, what in reasons if what == f"Insufficient {resource}")
        return f"{begun}, and {count} {'node has' if count == 1 else 'nodes have'} less free."
    short = {name: amount for name, amount in amounts.items() if amount.free < wanted} or amounts
    names = sorted(short, key=natural)
    shown = [f"{_free(resource, short[name])} on {name}" for name in names[:_NAMED]]
    more = [f"and {len(names) - _NAMED} more nodes"] if len(names) > _NAMED else []
    return f"{begun}, {', '.join([*shown, *more])}."


def _free(resource: str, amount: Amount) -> str:
    return f"{_written(resource, amount.free)} of {_written(resource, amount.allocatable)} free"


def _candidates(pod: Mapping[str, Any], nodes: Sequence[Node]) -> Sequence[Node]:
    """Give the nodes that the pod is bound to by name; where it is bound to none, those it may go to."""
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    expressions = [
        expression
        for term in required.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions") or ()
        if expression.get("operator") == "In"
    ]
    found = list(nodes)
    for expression in expressions:
        found = [node for node in found if node.labels.get(expression["key"]) in expression.get("values", ())]
    return found


def _amount(node: Node, resource: str) -> Amount:
    known = {GPU: node.gpus, HUGE_PAGES: node.huge_pages, "memory": node.memory, "cpu": node.cpus}
    if resource == node.resource:
        return node.fabric
    return known.get(resource, Amount())


def _written(resource: str, number: int) -> str:
    if resource == "cpu":
        return f"{number / 1000:g}"
    if resource == "memory" or resource.startswith(("hugepages-", "ephemeral-storage")):
        return f"{number / (1 << 30):.3g} GiB"
    return str(number)


def _kept_away(name: str, reasons: Sequence[tuple[int, str]]) -> Explanation:
    """Explain a pod that fits, but must not go where it would."""
    said = "; ".join(f"{_nodes(count)}: {what.removeprefix('node(s) ')}" for count, what in reasons)
    text = f"The pod {name} finds no node. {brief(said)}."
    taints = [key.partition(":")[0].strip() for key in _TAINT.findall(said)]
    own = dict.fromkeys(key for key in taints if not key.startswith(_CONDITIONS))
    if own:
        flags = " ".join(f"--toleration {key}" for key in own)
        advice = f"If the nodes are meant for this, tolerate their taints: {flags}."
        return Explanation(code="taints", text=text, advice=advice)
    found = first(_KEPT_AWAY, said)
    advice = "The nodes named are gone or have other labels: see fabbench check, and name others."
    return Explanation(
        code=found.code if found else "no-node",
        text=text,
        advice=found.advice if found else advice,
        final=False,
    )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
