"""What the API or an admission controller said no to: rights, quotas, Pod Security, limit ranges. Pure.

Wordings: k8s.io/apiserver (forbidden), plugin/pkg/admission/resourcequota, k8s.io/pod-security-admission,
plugin/pkg/admission/limitranger.
"""

from fabbench.pods.explanation import Explanation, brief, first, words

_TABLE = (
    words(
        r"exceeded quota: (?P<quota>[^,]+), requested: (?P<asked>.*?), used: (?P<used>.*?), "
        r"limited: (?P<limit>[^\"\n]+)",
        "quota",
        "The quota {quota} of the namespace is exceeded: asked {asked}, in use {used}, allowed {limit}.",
        "Ask for fewer nodes, use another namespace, or have the quota raised.",
    ),
    words(
        r'failed quota: (?P<quota>[^:]+): must specify (?P<what>[^"\n]+)',
        "quota",
        "The quota {quota} of the namespace wants every pod to say {what}.",
        "Use another namespace: fabbench sets no limit of CPUs, which would slow down what is measured.",
    ),
    words(
        r'violates PodSecurity "(?P<level>[^"]+)": (?P<why>.+)',
        "pod-security",
        "The namespace admits only pods of the level {level}: {why}.",
        "RDMA needs IPC_LOCK, which only the level privileged lets pods have: use a namespace with the label "
        "pod-security.kubernetes.io/enforce=privileged.",
    ),
    words(
        r"(?P<why>(?:maximum|minimum) \S+ usage per (?:Pod|Container) is [^\]\n]+)",
        "limit-range",
        "A LimitRange of the namespace forbids the pod: {why}.",
        "Use another namespace, or have the LimitRange changed.",
    ),
    words(
        r'User "(?P<user>[^"]+)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group '
        r'"(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[^"]+)"| at the cluster scope)?',
        "rights",
        "{user} may not {verb} {resource}{where}.",
        "Have a Role with this verb bound to it; fabbench's examples have one with all that is needed.",
    ),
    words(
        r"(?:admission webhook|validatingadmissionpolicy) [\"'](?P<hook>[^\"']+)[\"'] .*?"
        r"denied (?:the )?request:? (?P<why>.+)",
        "policy",
        "The cluster's policy {hook} forbids it: {why}.",
        "Ask those who run the cluster for a namespace where it is allowed.",
    ),
    words(
        r'namespaces? "(?P<namespace>[^"]+)" not found',
        "namespace",
        "There is no namespace {namespace}.",
        "Name another with --namespace, or make it: kubectl create namespace {namespace}.",
    ),
)


def explain_refusal(said: str) -> Explanation | None:
    """Explain why something was forbidden, from the message of a Status object, an event or a condition."""
    groups = _where(said)
    found = first(_TABLE, said, where=groups)
    if found is None and "forbidden" in said.lower():
        return Explanation(
            code="forbidden",
            text=f"The cluster forbids it: {brief(said)}.",
            advice="Ask those who run the cluster.",
        )
    return found


def _where(said: str) -> str:
    _, _, rest = said.partition('in the namespace "')
    return f" in the namespace {rest.partition(chr(34))[0]}" if rest else " in the whole cluster"
