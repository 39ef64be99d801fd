"""Logs are read out of compressed files and archives, and what swells beyond a log is refused."""

import bz2
import gzip
import io
import lzma
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from fabbench import parse
from fabbench.dataframes import frame
from fabbench.logs.signs import Unread
from fabbench.model.errors import MachineError
from fabbench.model.log import Log
from fabbench.runs import log_files
from fabbench.runs.load_columns import load
from fabbench.runs.log_files import Source, open_all, open_logs
from fabbench.runs.parse_file import parse_source
from tests.support.nccl_text import nccl_text
from tests.support.paths import LOGS

TEXT = nccl_text([(1 << power, 0.5 * power) for power in range(10, 20)]).encode()
JSON = (LOGS / "nccl/all_reduce.json").read_bytes()
IOR = b"IOR-3.3.0: MPI Coordinated Test of Parallel I/O\n"


def zstd(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd as module

        return bytes(module.compress(data))
    found: bytes = import_module("zstandard").ZstdCompressor().compress(data)
    return found


def tar(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return file.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}
MEMBERS = {
    "results/a.log": TEXT,
    "results/deep/b.log.gz": gzip.compress(TEXT),
    "results/c.json": JSON,
    "results/.hidden.log": TEXT,
    "results/notes.md": b"Nothing of a benchmark.",
}


def write(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def entries(name: str) -> list[Log | Unread]:
    return list(parse_source(Source(name=name)))


def reasons(name: str) -> list[tuple[str, str]]:
    return [(entry.source, entry.reason) for entry in entries(name) if isinstance(entry, Unread)]


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_a_compressed_log_is_read_as_what_it_holds(ending: str, tmp_path: Path) -> None:
    plain = parse(write(tmp_path, "plain.log", TEXT))
    for data in (TEXT, JSON):
        (log,) = parse(write(tmp_path, "x", COMPRESSORS[ending](data)))
        assert (log.outcome, len(log.points)) == ("ok", len(parse(write(tmp_path, "y", data))[0].points))
    assert log.points != plain[0].points
    twice = COMPRESSORS[ending](TEXT) + bytes(2000) + COMPRESSORS[ending](TEXT) + bytes(4)
    assert [found.outcome for found in parse(write(tmp_path, "two", twice))] == ["ok", "ok"]


@pytest.mark.parametrize("ending", ["", "zip", *COMPRESSORS])
def test_an_archive_stands_for_the_files_in_it(ending: str, tmp_path: Path) -> None:
    data = zipped(MEMBERS) if ending == "zip" else COMPRESSORS.get(ending, bytes)(tar(MEMBERS))
    name = write(tmp_path, f"r.{ending}", data)
    expected = [f"{name}!results/{member}" for member in ("a.log", "deep/b.log.gz", "c.json")]
    assert [log.source for log in parse(name)] == expected
    assert set(frame(name)["source"]) == set(expected)


@pytest.mark.parametrize("pack", [lambda: gzip.compress(tar(MEMBERS)), lambda: zipped(MEMBERS)])
def test_one_file_of_an_archive_can_be_named(pack: Callable[[], bytes], tmp_path: Path) -> None:
    name = write(tmp_path, "r!1", pack())
    member = f"{name}!results/deep/b.log.gz"
    assert [log.source for log in parse(member)] == [member]
    (column,) = load(member)
    assert (column.label, len(column.logs)) == ("b", 1)
    with pytest.raises(MachineError, match=r"results/d.log not found in .*r!1"):
        parse(f"{name}!results/d.log")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["\ufeff", ""])
@pytest.mark.parametrize("wrap", [bytes, gzip.compress, lambda data: tar({"a.log": data})])
def test_utf_16_is_read_as_text(tmp_path: Path, encoding: str, mark: str, wrap: Callable[[bytes], bytes]) -> None:
    for text in (TEXT.decode(), TEXT.decode().replace("\n", "\r\n"), JSON.decode()):
        (expected,) = parse(write(tmp_path, "plain.log", text.encode()))
        data = f"{mark}{text}".encode(encoding)
        (log,) = parse(write(tmp_path, "powershell.log", wrap(data)))
        assert (log.outcome, log.points, log.facts) == (expected.outcome, expected.points, expected.facts)
        (cut,) = parse(write(tmp_path, "cut.log", wrap(data[: len(data) // 2 * 2 - 601])))
        assert cut.outcome != "ok"


def test_files_of_one_archive_are_read_in_one_pass(tmp_path: Path) -> None:
    name = write(tmp_path, "r.tar", tar({f"{number}.log": TEXT for number in range(20)}))
    wanted = [f"{name}!{number}.log" for number in range(0, 20, 2)]
    assert [log.name for log in open_all(wanted) if log.read()] == wanted


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
    data = tar({"a.log": TEXT, "b.log": large})
    *logs, last = entries(write(tmp_path, "cut.tar", data[: len(data) // 2]))
    assert [log.outcome for log in logs if isinstance(log, Log)][:1] == ["ok"]
    assert isinstance(last, Unread)


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_a_file_that_swells_is_refused(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MAX_BYTES", 1 << 20)
    bomb, compress = bytes(8 << 20), COMPRESSORS[ending]
    packed = (compress(bomb), tar({"x.log": compress(bomb)}), zipped({"x.log": bomb}), compress(tar({"x.log": bomb})))
    for data in packed:
        name = write(tmp_path, f"bomb.{ending}", data)
        assert any("decompresses to more than" in reason for _, reason in reasons(name))


def test_a_header_that_is_endless_is_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 40
    name = write(tmp_path, "x.tar", header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert "a header of 1099511627776 bytes" in reasons(name)[0][1]


def test_a_second_layer_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(lzma.compress(TEXT))
    assert "compressed more than once" in reasons(write(tmp_path, "x.gz", data))[0][1]


def test_what_an_archive_has_and_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = bytearray(gzip.compress(TEXT))
    broken[len(broken) // 2] ^= 0xFF
    data = tar({"ok.log": TEXT, "in.tar": tar(MEMBERS), "broken.gz": bytes(broken), "ior.txt": IOR})
    name = write(tmp_path, "r.tar", data)
    found = dict(reasons(name))
    assert "inside an archive" in found[f"{name}!in.tar"]
    assert "cannot be read" in found[f"{name}!broken.gz"]
    assert "IOR" in found[f"{name}!ior.txt"]
    assert next(entry.source for entry in entries(name) if isinstance(entry, Log)) == f"{name}!ok.log"


def test_links_and_devices_of_an_archive_are_not_followed(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            header = tarfile.TarInfo("../../etc/passwd")
            header.type, header.linkname = kind, "/etc/passwd"
            archive.addfile(header)
    name = write(tmp_path, "x.tar", file.getvalue())
    assert list(open_logs(name)) == []


def test_a_locked_file_of_a_zip_archive_is_named(tmp_path: Path) -> None:
    data = bytearray(zipped({"x.log": TEXT}))
    data[6] |= 1
    directory = data.index(b"PK\x01\x02")
    data[directory + 8] |= 1
    name = write(tmp_path, "x.zip", bytes(data))
    ((source, reason),) = reasons(name)
    assert source == f"{name}!x.log"
    assert "encrypted" in reason


def test_without_zstandard_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("Python has zstd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    name = write(tmp_path, "x.zst", b"\x28\xb5\x2f\xfd" + bytes(20))
    assert "pip install 'fabbench[zstd]'" in reasons(name)[0][1]


def test_random_bytes_never_break_the_readers(tmp_path: Path) -> None:
    signs = (b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")
    noise = zlib.compress(bytes(range(256)) * 8)
    for sign in signs:
        (entry,) = entries(write(tmp_path, "x", sign + noise))
        assert isinstance(entry, Unread)
