"""What the formats for Kubernetes have in common: the run as it is asked for, and YAML."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fabbench.errors import RequestError
from fabbench.pods.asked import Asked, Object, SshKey
from fabbench.pods.images import image_of, require_benchmark
from fabbench.pods.share import Share, requested, share_of_type
from fabbench.rendering import Job
from fabbench.script.limits import longest_s
from fabbench.variants import refuse_images

if TYPE_CHECKING:
    import yaml

_RUN = "rendered"
_PUBLIC = "ssh-ed25519 MADE-ANEW-FOR-EVERY-RUN fabbench"


def asked(job: Job) -> Asked:
    """Say what objects are made from: the nodes of the plan's instance type, with all their devices.

    The settings say what is otherwise: `run_id`, and amounts of `pod_requests`. Hosts that are named are
    labels ``kubernetes.io/hostname``. Raises RequestError where neither the type nor amounts are known, or
    the image lacks the benchmark.
    """
    settings = job.settings
    refuse_images(job.request.variants, "one job")
    amounts = tuple(settings.get("pod_requests") or ())
    if job.instance is None and not amounts:
        raise RequestError(
            "Nothing says what the nodes have.", hint="Name their type, such as --instance-type p5.48xlarge."
        )
    image = image_of(settings)
    require_benchmark(job.plan.benchmark, image)
    needs_gpus = any(host.gpus for host in job.inventory.hosts)
    instance_type = job.instance.instance_type if job.instance else ""
    share = share_of_type(instance_type, gpus=needs_gpus) if instance_type else Share()
    return Asked(
        run=str(settings.get("run_id") or _RUN),
        count=len(job.inventory.hosts),
        share=requested(share, amounts),
        deadline_s=longest_s(job.plan),
        image=image,
        hostnames=job.request.where.hosts if job.request.where else (),
        instance_type=instance_type,
        agent="exec" if settings.get("mpi_agent") == "exec" else "ssh",
        key=SshKey(public=_PUBLIC),
        host_network=bool(settings.get("host_network")),
        request=f"fabbench run {job.plan.benchmark}",
    )


def written(objects: Iterable[Object], about: str) -> str:
    """Write objects as YAML documents, `about` as a comment before them."""
    import yaml

    text: str = yaml.dump_all(objects, Dumper=_dumper(), explicit_start=True, **_STYLE)
    return _comment(about) + text


def document(value: Object, about: str) -> str:
    """Write one YAML document that is alone in its file, `about` as a comment before it."""
    import yaml

    text: str = yaml.dump(value, Dumper=_dumper(), **_STYLE)
    return _comment(about) + text


_OTHERWISE = re.compile(r"[-+]?[\d._]+([eE][-+]?[\d_]+)?|0o[0-7_]+|[yYnN]")
"""Texts that PyYAML writes without quotes, and the API reads as numbers or truths: ``7e12``, ``08123``."""
_STYLE: dict[str, Any] = {"sort_keys": False, "width": 110, "allow_unicode": True}


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


def _dumper() -> "type[yaml.SafeDumper]":
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as they are."""

    def block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else "'" if _OTHERWISE.fullmatch(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, block)
    return Dumper
