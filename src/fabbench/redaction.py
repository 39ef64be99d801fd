"""What is not to be stored or shown: the values of variables whose names say that they are secret. Pure."""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "(redacted)"
_SECRET = re.compile(r"SECRET|TOKEN|PASS(WD|WORD|PHRASE)?|CREDENTIAL|PRIVATE|AUTH|(^|_)KEY", re.IGNORECASE)


def shown(name: str, value: str) -> str:
    """Give the value of a variable as it may be shown."""
    return REDACTED if _SECRET.search(name) else value


def hidden(text: str, env: Mapping[str, str]) -> str:
    """Take the secret ones of these variables out of a document, in which they stand as ``NAME=VALUE``."""
    for name, value in filter(all, env.items()):
        for written in (value, value.replace("'", "'\"'\"'")):
            text = text.replace(f"{name}={written}", f"{name}={shown(name, written)}")
    return text


def redacted(value: Any) -> Any:
    """Take the values of environment variables with secret names out of a document."""
    if isinstance(value, Mapping):
        return {
            key: {name: shown(name, text) for name, text in inner.items()}
            if key == "env" and isinstance(inner, Mapping)
            else redacted(inner)
            for key, inner in value.items()
        }
    return [redacted(item) for item in value] if isinstance(value, list | tuple) else value
