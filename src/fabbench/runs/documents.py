"""What a store has besides runs, each in one document: certificates and watches."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fabbench.counters.watch import WatchResult
from fabbench.report.certificate import Certificate, render_certificate
from fabbench.report.watch_report import render_watch
from fabbench.runs.document import readable
from fabbench.runs.summary import Summary


class DocumentKind(NamedTuple):
    """One kind of documents."""

    command: str  # What makes them: lists have it in place of the benchmark
    document: type[Certificate | WatchResult]
    render: Callable[..., str]  # Takes one, and a format


KINDS = {
    "certificates": DocumentKind("accept", Certificate, render_certificate),
    "watches": DocumentKind("watch", WatchResult, render_watch),
}  # Folder of a store → what its files are


def document_path(store: Path, name: str) -> Path | None:
    """Return the file of a document by its id; None: the store has none."""
    paths = [store / folder / f"{name}.json" for folder in KINDS]
    return next(filter(Path.is_file, paths), None)


def document_summaries(store: Path) -> Iterator[Summary]:
    """Yield the documents of a store as runs: their verdict is the outcome."""
    for folder, kind in KINDS.items():
        for path in store.glob(f"{folder}/*.json"):
            known = readable(path, kind.document)
            if known is not None:
                yield Summary(
                    id=known.id,
                    created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(known.started)),
                    benchmark=kind.command,
                    target=known.target,
                    hosts=known.hosts,
                    outcomes={known.verdict: 1},
                    path=str(path.relative_to(store)),
                )
