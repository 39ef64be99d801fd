"""What settings of ``fabbench tune`` were measured with, where a run has something else.

A file that it wrote begins with a comment that says so; a variant of `fabbench.yaml` has it as its
`measured`. Files of others say nothing, nor do files that are not on this machine.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from fabbench.analysis.aggregate import Column
from fabbench.hosts.measured_elsewhere import measured_elsewhere
from fabbench.model.mappings import without_empty
from fabbench.model.patterns import lazy
from fabbench.model.plan import DEFAULT_VARIANT
from fabbench.plan.request import RunRequest
from fabbench.runs.store import StoredRun

_FILES = {"NCCL_CONF_FILE", "NCCL_TUNER_CONFIG_FILE"}  # Variables that name a file of settings
_COMMENT = lazy(r"(?m)^# Measured with (.*)\. Elsewhere, measure again\.$")


def measured_with(stored: StoredRun, column: Column) -> str:
    """Return what is known of a run, as `measured_elsewhere` takes it."""
    return ",".join(map("=".join, _known(stored, column).items()))


def _known(stored: StoredRun, column: Column) -> dict[str, str]:
    """Return what is known of a run: nodes, the first one's type and GPU, NCCL's version."""
    hosts = stored.document.hosts
    facts = {
        "nodes": str(len(hosts)),
        "type": hosts[0].instance_type,
        "GPU": hosts[0].gpu_model,
        "NCCL": str(column.logs[-1].facts.get("nccl", "")),
    }
    return without_empty(facts)


def elsewhere(request: RunRequest, stored: StoredRun, columns: Sequence[Column]) -> Iterator[str]:
    """Yield a sentence for settings that were measured with something else than this run has."""
    for column in columns:
        variant = column.variant or DEFAULT_VARIANT
        env = {**request.env, **variant.env}
        files = [env[name] for name in _FILES & env.keys()]
        said = {file: _comment(Path(file)) for file in files}
        said[variant.name] = variant.measured
        here = _known(stored, column)
        differing = (measured_elsewhere(what, there, here) for what, there in said.items())
        yield from filter(None, differing)


def _comment(file: Path) -> str:
    """Return what a file's comment says that it was measured with; empty: nothing."""
    with suppress(OSError, ValueError):  # ValueError: it is not UTF-8, or its name has a null
        if file.is_file():  # A pipe would wait
            found = _COMMENT.search(file.read_text("utf-8"))
            return found[1] if found else ""
    return ""
