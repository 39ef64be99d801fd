"""Ids of what is stored in one document."""

import time
from secrets import token_hex


def dated_id() -> str:
    """Return a new id: in the order of ids, the latest is the last."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"{moment}-{token_hex(3)}"
