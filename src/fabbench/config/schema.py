"""The JSON schema of `fabbench.yaml`, for editors. It comes from the table of keys."""

from typing import Any

from fabbench.config.keys import FILE


def schema() -> dict[str, Any]:
    """Give the schema (draft 7, which editors know best).

    It knows less than the loader: not which launchers are installed, not that a default exists, not how
    ranges of hosts are written.
    """
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "fabbench.yaml",
        "description": "Targets and defaults of fabbench.",
        **FILE.schema(),
    }
