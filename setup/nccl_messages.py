"""Write the index of what NCCL, RCCL and aws-ofi-nccl warn of, from clones of their sources.

`python setup/nccl_messages.py NCCL RCCL OFI > src/fabbench/catalog/warnings.csv`, where each
argument is a git directory. A row: the program, the source file that prints the message (`*`: a
macro, which any file may use; `NET/OFI`: the plug-in), words of the message that no other one has,
whether an error return follows it (`yes`, `no`; `both`: in some places or releases), and the first
and last release that has it. The sentences themselves are not copied.
"""

import csv
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

MACROS = {"nccl": "WARN", "rccl": "WARN", "aws-ofi-nccl": "NCCL_OFI_WARN"}
"""Program → the macro that prints a warning."""

RELEASES = {
    "nccl": re.compile(r"v2\.(?:[89]|[1-9]\d)\.\d+-1"),
    "rccl": re.compile(r"rocm-[56]\.\d+\.\d+"),
    "aws-ofi-nccl": re.compile(r"v1\.\d+\.\d+(?:-aws)?"),
}
"""Program → the tags that are read."""

HEADER = """\
# What NCCL, RCCL (what NCCL does not have) and aws-ofi-nccl warn of, as an index of their sources.
# Written by setup/nccl_messages.py from the releases of github.com/NVIDIA/nccl, ROCm/rccl and
# aws/aws-ofi-nccl. file: the source file that prints the message; *: a macro, in any; NET/OFI: the
# plug-in, whose lines name functions. words: what no message with another fate has. error: whether
# an error return follows (both: in some places or releases, or where a library is only tried).
"""

_SOURCE = re.compile(r"(?:src|include|plugins)/.*\.(?:cc?|cpp|h|cu)")
_ELSEWHERE = re.compile(r"windows|/tests?/|contrib|examples?/")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_DIRECTIVE = re.compile(r"%[-+ #0-9.*]*(?:hh?|ll?|[zjtL])?[a-zA-Z%]|\\[nt]")
_ERROR = re.compile(
    r"return (?:nccl(?!Success|InProgress)\w+|-\w+|NULL|nullptr|false|re[st]\w*;"
    r"|rc;|status;|err\w*;)"
    r"|\w = nccl\w+(?:Error|Usage|Argument)\b|\b(?:ret|res|rc|result|status)\w* = -\w+"
    r"|goto \w+|NCCLCHECKGOTO\(nccl|CUDACHECK\(res|\bexit\(|\babort\(|\bthrow\b"
)
_FINE = re.compile(r"return ncclSuccess|\bcontinue;|\bbreak;")
_ONLY_TRIED = re.compile(r"lib wrapper|open lib|dlopen|dlv?sym|[Ll]ookup")
"""A library that is not there, which callers may go without."""
_LOOKED_AT = 400
"""Characters after a message in which its error return is looked for."""
_USUAL_WORDS = 3
_MOST_WORDS = 8


@dataclass
class Message:
    """A message, as it is known so far."""

    program: str
    file: str
    text: str
    fates: set[bool] = field(default_factory=set)
    """Whether an error return follows, in each place and release."""
    releases: list[str] = field(default_factory=list)

    @property
    def fragments(self) -> list[list[str]]:
        """The words between its directives."""
        return [part.split() for part in _DIRECTIVE.split(self.text) if part.strip()]

    @property
    def fate(self) -> str:
        """Whether an error return follows: `yes`, `no` or `both`."""
        if len(self.fates) == 2:
            return "both"
        return "yes" if True in self.fates else "no"


@dataclass
class Row:
    """A row of the index."""

    program: str
    file: str
    words: str
    fate: str
    releases: list[str]

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it another row than the others."""
        return self.file, self.words, self.fate

    @property
    def span(self) -> tuple[str, str]:
        """The first and the last release that has it."""
        ordered = sorted(self.releases, key=_version)
        return ordered[0], ordered[-1]


def main(folders: Sequence[str]) -> None:
    """Write the index to stdout."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    sys.stdout.write(HEADER)
    writer.writerow(["program", "file", "words", "error", "first", "last"])
    index: dict[tuple[str, str, str], Row] = {}
    for program, folder in zip(MACROS, folders, strict=True):
        for row in _rows(list(_messages(program, folder))):
            known = index.setdefault(row.key, row)
            if known.program == program:  # RCCL has most of NCCL's messages
                known.releases += row.releases
    for row in sorted(index.values(), key=lambda row: (row.program, row.key)):
        writer.writerow([row.program, *row.key, *row.span])


def _messages(program: str, folder: str) -> Iterable[Message]:
    """Return all messages of a program's releases."""
    known: dict[tuple[str, str], Message] = {}
    read: dict[str, list[tuple[str, str, bool]]] = {}
    for tag in _tags(program, folder):
        for blob, path in _sources(folder, tag):
            if blob not in read:
                source = _git(folder, "cat-file", "blob", blob)
                read[blob] = list(_in_source(program, source))
            for file, text, fails in read[blob]:
                key = (_place(program, file, path), text)
                message = known.setdefault(key, Message(program, *key))
                message.fates |= {False, True} if _ONLY_TRIED.search(text) else {fails}
                message.releases.append(tag)
    return known.values()


def _place(program: str, file: str, path: str) -> str:
    """Return what the index calls the place that prints a message."""
    if program == "aws-ofi-nccl":  # its lines name functions
        return "NET/OFI"
    return file or PurePath(path).name


def _tags(program: str, folder: str) -> list[str]:
    """Return the releases of a program, the oldest first."""
    tags = _git(folder, "tag", "--sort=version:refname").split()
    return [tag for tag in tags if RELEASES[program].fullmatch(tag)]


def _sources(folder: str, tag: str) -> Iterator[tuple[str, str]]:
    """Yield the blob and the path of each source file of a release."""
    for line in _git(folder, "ls-tree", "-r", tag).splitlines():
        entry, _, path = line.partition("\t")
        if _SOURCE.fullmatch(path) and not _ELSEWHERE.search(path):
            yield entry.split()[2], path


def _git(folder: str, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", folder, *words],
        capture_output=True,
        check=True,
    )
    return done.stdout.decode("utf-8", "replace")


def _in_source(program: str, source: str) -> Iterator[tuple[str, str, bool]]:
    """Yield `*` for a macro, the format, and whether an error return follows, of each message."""
    for match in re.finditer(rf"\b{MACROS[program]}\(", source):
        end = _closing(source, match.end())
        begin_of_line = source.rfind("\n", 0, match.start()) + 1
        if source[begin_of_line:].lstrip().startswith(("#define", "//", "*")):
            continue
        text = _format(source[match.end() : end])
        if text:
            in_macro = source[begin_of_line : source.find("\n", end)].rstrip().endswith("\\")
            follows = source[end + 1 : end + _LOOKED_AT].replace("\\\n", "\n")
            yield "*" if in_macro else "", text, _fails(follows)


def _closing(source: str, at: int) -> int:
    """Return where the parenthesis that is open at a position is closed."""
    depth = 1
    quoted = False
    while depth and at < len(source):
        letter = source[at]
        if letter == "\\" and quoted:
            at += 1
        elif letter == '"':
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(letter, 0)
        at += 1
    return at - 1


def _format(arguments: str) -> str:
    """Return the format of a message: its strings, with a directive where a macro is between them.

    Empty if it does not begin with a text.
    """
    text = ""
    at = 0
    for string in _STRING.finditer(arguments):
        between = arguments[at : string.start()]
        if "," in between:
            break
        if between.strip():
            text += "%s"
        text += string[1]
        at = string.end()
    return text


def _fails(follows: str) -> bool:
    """Return whether the rest of a block, after a message, returns an error."""
    depth = 0
    for at, letter in enumerate(follows):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth < 0:
            follows = follows[:at]
            break
    error = _ERROR.search(follows)
    fine = _FINE.search(follows)
    if error is None:
        return False
    return fine is None or error.start() < fine.start()


def _rows(messages: Sequence[Message]) -> Iterator[Row]:
    """Yield the row of each message that has words of its own."""
    for message in messages:
        words = _own_words(message, messages)
        if words:
            yield Row(message.program, message.file, words, message.fate, list(message.releases))


def _version(tag: str) -> list[int]:
    """Return the numbers of a tag."""
    return [int(number) for number in re.findall(r"\d+", tag)]


def _own_words(message: Message, messages: Sequence[Message]) -> str:
    """Return the fewest words of a message that no message with another fate has; else nothing."""
    others = [each.text for each in messages if each.fate != message.fate]
    same_file = [
        each.text
        for each in messages
        if each.fate != message.fate and each.file in {message.file, "*"}
    ]
    for rivals in (others, same_file):
        for count in (*range(_USUAL_WORDS, _MOST_WORDS + 1), 2, 1):
            for words in _windows(message.fragments, count):
                if not any(words in text for text in rivals):
                    return words
    return ""


def _windows(fragments: Iterable[Sequence[str]], count: int) -> Iterator[str]:
    """Yield each run of `count` words."""
    for words in fragments:
        bounds = range(len(words) + 1)
        for begin, end in zip(bounds, bounds[count:], strict=False):
            yield " ".join(words[begin:end])


if __name__ == "__main__":
    main(sys.argv[1:])
