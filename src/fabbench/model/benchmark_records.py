"""Records of what benchmarks print and find: signs.toml and findings.toml.

A module of its own: msgspec loads slowly, and `--help` reads no output.
"""

import msgspec

from fabbench.model.log import Severity
from fabbench.model.signature import Signature


class Signs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a line shows that a benchmark printed it."""

    name: str = ""
    first_words: tuple[str, ...] = ()
    begins: str = ""
    """A pattern of the beginning of others that it has to see; empty: there are none."""
    over_mpi: bool = False
    """Whether lines in which MPI says what carries the data come first, too."""
    signatures: tuple[Signature, ...] = ()
    program_names: str = ""


class FindingText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a finding says."""

    code: str
    meaning: str
    advice: str = ""
    of: str = ""
    severity: Severity = Severity.WARNING
