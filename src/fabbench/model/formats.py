"""What is written in which format: one table for ``--format``, ``-o``, ``--help`` and the docs."""

SUFFIXES = {
    "text": ".txt",
    "markdown": ".md",
    "csv": ".csv",
    "json": ".json",
    "html": ".html",
    "svg": ".svg .png",
    "junit": ".xml",
    "openmetrics": ".prom",
    "comment": "",
    "ctrf": "",
    "conf": ".conf .env",
    "yaml": ".yaml",
}
"""Every format → how the names of its files end, by which ``-o FILE`` chooses it."""

_WRITTEN = {
    "comparison": "markdown text csv json html svg junit openmetrics comment",
    "sweep": "markdown text csv json html svg",
    "certificate": "markdown text json html junit ctrf",
    "history": "markdown text csv json html",
    "list": "text markdown csv json",
    "watch": "text markdown csv json html openmetrics",
    "diagnosis": "text json",
    "configuration": "text json",
    "page": "html",
    "settings": "text conf yaml csv",
}
FORMATS = {kind: words.split() for kind, words in _WRITTEN.items()}
"""Kind of result → its formats, the default first. On a terminal, text comes before Markdown."""
