"""What NCCL, RCCL and aws-ofi-nccl warn of, and whether an error follows.

The table is warnings.csv: an index of the programs' sources, which setup/nccl_messages.py writes.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType

from fabbench.catalog.systems import rows_of
from fabbench.model.mappings import gathered

_ANY_FILE = "*"
_PLUGIN = "NET/OFI"


@lru_cache(maxsize=256)  # ranks print the same
def error_follows(message: str, file: str) -> bool:
    """Return whether the sources return an error below a warning of a source file, everywhere.

    `file` is a name without directories; empty: the log does not show it. A message that is not
    in the index, and one that only sometimes leads to an error, is none. What a macro prints counts
    only in files that also warn themselves: any other may be of somebody's plug-in.
    """
    fates = [fate for words, fate in _candidates(message, file) if words in message]
    return bool(fates) and all(fate == "yes" for fate in fates)


def _candidates(message: str, file: str) -> list[tuple[str, str]]:
    """Return the words of messages that may be printed there, and their fates: see `_index`.

    Those of aws-ofi-nccl begin with NET/OFI. A macro's are printed in any file that is indexed.
    Without a file, any but aws-ofi-nccl's may be meant.
    """
    index = _index()
    places = {file, _ANY_FILE} if file in index else set[str]()
    if message.startswith(_PLUGIN):
        places = {_PLUGIN}
    elif not file:
        places = index.keys() - {_PLUGIN}
    return [candidate for place in places for candidate in index[place]]


@cache
def _index() -> Mapping[str, list[tuple[str, str]]]:
    """Return by source file the words of its messages, each with its fate.

    That is whether an error follows: `yes` if it always does.
    """
    candidates = gathered(
        (row["file"], (row["words"], row["error"]))
        for row in rows_of("warnings.csv")  # which is large, and read when a message needs it
    )
    return MappingProxyType(candidates)
