"""Logs are read out of compressed files, and what swells beyond a log is refused."""

import bz2
import gzip
import io
import lzma
import random
import re
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from fabbench import parse
from fabbench.logs.signs import Unread, UnreadWarning
from fabbench.model.log import Ending, Log
from fabbench.runs import parse_file
from fabbench.runs.inputs import Source, expand, read_source
from tests.support.nccl_text import nccl_text
from tests.support.paths import LOGS

TEXT = nccl_text([(1 << power, 0.5 * power) for power in range(10, 20)]).encode()
JSON = (LOGS / "nccl/all_reduce.json").read_bytes()


def zstd(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd as module

        return bytes(module.compress(data))
    found: bytes = import_module("zstandard").ZstdCompressor().compress(data)
    return found


def tar(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        header = tarfile.TarInfo("a.log")
        header.size = len(data)
        archive.addfile(header, io.BytesIO(data))
    return file.getvalue()


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.log", data)
    return file.getvalue()


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


def write(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def entries(name: str) -> list[Log | Unread]:
    return [entry for _, entry in read_source(Source(name=name))]


def reasons(name: str) -> list[tuple[str, str]]:
    return [(entry.source, entry.reason) for entry in entries(name) if isinstance(entry, Unread)]


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_a_compressed_log_is_read_as_what_it_holds(ending: str, tmp_path: Path) -> None:
    plain = parse(write(tmp_path, "plain.log", TEXT))
    for data in (TEXT, JSON):
        (log,) = parse(write(tmp_path, "x", COMPRESSORS[ending](data)))
        assert (log.outcome, len(log.points)) == (
            "ok",
            len(parse(write(tmp_path, "y", data))[0].points),
        )
    assert log.points != plain[0].points
    twice = COMPRESSORS[ending](TEXT) + bytes(2000) + COMPRESSORS[ending](TEXT) + bytes(4)
    assert [found.outcome for found in parse(write(tmp_path, "two", twice))] == ["ok", "ok"]


@pytest.mark.parametrize("pack", [tar, zipped, lambda data: gzip.compress(tar(data))])
def test_an_archive_is_refused(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    ((_, reason),) = reasons(write(tmp_path, "a", pack(TEXT)))
    assert "archive: unpack it" in reason


@pytest.mark.parametrize("name", ["a.tgz", "a.tar", "a.zip", "a.tar.gz"])
def test_an_archive_in_a_directory_is_skipped(name: str, tmp_path: Path) -> None:
    write(tmp_path, name, b"")
    write(tmp_path, "plain.log", TEXT)
    with pytest.warns(UnreadWarning, match=f"{name} is an archive"):
        assert [log.outcome for log in parse(tmp_path)] == ["ok"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["\ufeff", ""])
@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
def test_utf_16_is_read_as_text(
    tmp_path: Path, encoding: str, mark: str, wrap: Callable[[bytes], bytes]
) -> None:
    for text in (TEXT.decode(), TEXT.decode().replace("\n", "\r\n"), JSON.decode()):
        (expected,) = parse(write(tmp_path, "plain.log", text.encode()))
        data = f"{mark}{text}".encode(encoding)
        (log,) = parse(write(tmp_path, "powershell.log", wrap(data)))
        assert (log.outcome, log.points, log.facts) == (
            expected.outcome,
            expected.points,
            expected.facts,
        )
        (cut,) = parse(write(tmp_path, "cut.log", wrap(data[: len(data) // 2 * 2 - 601])))
        assert cut.outcome != "ok"


def test_what_is_cut_says_so_and_keeps_what_was_read(tmp_path: Path) -> None:
    large = TEXT * 40
    for ending, compress in COMPRESSORS.items():
        data = compress(large)
        name = write(tmp_path, f"cut.{ending}", data[: len(data) // 2])
        *logs, last = entries(name)
        assert isinstance(last, Unread)
        assert last.reason.startswith(f"{name} cannot be read: ")
        assert all(isinstance(log, Log) for log in logs)
        first, last = entries(write(tmp_path, f"more.{ending}", compress(TEXT) + b"more"))
        assert (type(first), type(last)) == (Log, Unread)


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_a_file_that_swells_is_refused(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parse_file, "MAX_BYTES", 1 << 20)
    name = write(tmp_path, f"bomb.{ending}", COMPRESSORS[ending](bytes(8 << 20)))
    assert any("decompresses to more than" in reason for _, reason in reasons(name))


def test_a_second_layer_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(lzma.compress(TEXT))
    assert "compressed more than once" in reasons(write(tmp_path, "x.gz", data))[0][1]


def test_without_zstandard_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("Python has zstd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    name = write(tmp_path, "x.zst", b"\x28\xb5\x2f\xfd" + bytes(20))
    assert "pip install 'fabbench[zstd]'" in reasons(name)[0][1]


def test_random_bytes_never_break_the_readers(tmp_path: Path) -> None:
    signs = (b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
    noise = zlib.compress(bytes(range(256)) * 8)
    for sign in signs:
        (entry,) = entries(write(tmp_path, "x", sign + noise))
        assert isinstance(entry, Unread)


PLAIN_LINE = f"{'a plain line ' * 7}\n"
"""As many as these are more than is read at once."""


def steps(beginning: str) -> list[Log]:
    """Read two configurations of one script, below what it printed first."""
    begin, end = "#@fabbench begin {}/x benchmark=nccl\n", "#@fabbench end {}/x 0\n"
    step = f"{begin}{TEXT.decode()}{end}"
    text = beginning + step.format("000-a-r1", "000-a-r1") + step.format("001-b-r1", "001-b-r1")
    file = io.BytesIO(text.encode())
    return [log for _, log in parse_file.parse_stream(file, "log")]


def test_a_long_text_before_the_first_marker_is_known_to_each_configuration() -> None:
    version = "NCCL version 2.28.9+cuda13.0\n"
    short, long = steps(version), steps(version + PLAIN_LINE * 4_000)
    assert [log.facts for log in long] == [log.facts for log in short]
    assert [log.facts.get("nccl") for log in short] == ["2.28.9"] * 2


class Counted(io.BytesIO):
    """A file that counts what is read of it."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def noise(size: int) -> bytes:
    return random.Random(1).randbytes(size)


STORED_NUMBERS = struct.pack("<40000q", *range(40_000))
SHIFTED_CODE = bytes(range(0x80, 0x100)) * 2000
"""Bytes without a control character, and no text either."""


@pytest.mark.parametrize("data", [noise(3 << 20), STORED_NUMBERS * 10, SHIFTED_CODE * 10])
def test_of_binary_data_one_block_is_read(data: bytes) -> None:
    file = Counted(data + b"\n" + TEXT)
    assert not list(parse_file.parse_stream(file, "core.1"))
    assert file.count == parse_file.BLOCK


def test_binary_data_are_named_and_noted_beside_logs(tmp_path: Path) -> None:
    named = write(tmp_path, "core.1", noise(100_000))
    write(tmp_path, "plain.log", TEXT)
    write(tmp_path, "picture.png", noise(1000))
    assert reasons(named) == [(named, "This is binary data and no log.")]
    with pytest.warns(UnreadWarning, match=r"core\.1: This is binary data"):
        assert [log.outcome for log in parse(named, tmp_path / "plain.log")] == ["ok"]
    found = [
        (entry, source.name)
        for source in expand([str(tmp_path)])
        for _, entry in read_source(source)
        if isinstance(entry, Unread)
    ]
    assert [(entry.remark, name) for entry, name in found] == [(True, named)]


def each_line_with(end: bytes) -> bytes:
    return TEXT.replace(b"\n", end)


@pytest.mark.parametrize(
    "data",
    [
        bytes(1 << 20) + b"\n" + TEXT,  # the file was emptied while it was written
        TEXT[:500] + b"\n" + bytes(3000) + b"\n" + TEXT,
        each_line_with(b"\0\n"),
        each_line_with(b"\x1b[0m\n"),
        TEXT + b"\n" + noise(2000),
        TEXT + b"\n" + bytes(5000),
        "\u5e73\u5747\u5e26\u5bbd\n".encode("gbk") * 40 + TEXT,
    ],
)
def test_a_log_with_gaps_colors_or_damage_is_read(data: bytes, tmp_path: Path) -> None:
    assert (
        parse(write(tmp_path, "x.log", data))[-1].points
        == parse(write(tmp_path, "plain.log", TEXT))[0].points
    )


def test_how_an_own_run_ended_is_said_whatever_it_has_printed(tmp_path: Path) -> None:
    begin = b"#@fabbench begin 000-a-r1/x benchmark=nccl\n"
    name = write(tmp_path, "output.log", begin + noise(10_000))
    ending = Ending(stopped="It was stopped.")
    (log,) = parse_file.parse_file(name, ending=ending)
    assert log.outcome != "ok"


def test_a_table_out_of_a_spreadsheet_is_whole(tmp_path: Path) -> None:
    closing = b"# Collective test concluded: all_reduce_perf\n"
    whole = TEXT + closing
    assert b"# Collective test starting" in whole
    pasted = re.sub(rb" +", b"\t", whole)
    (expected,) = parse(write(tmp_path, "plain.log", whole))
    (log,) = parse(write(tmp_path, "pasted.log", pasted))
    assert (log.outcome, log.points) == ("ok", expected.points)
    (cut,) = parse(write(tmp_path, "cut.log", pasted[: len(pasted) // 2]))
    assert cut.outcome == "truncated"
