"""The probe: a shell script that tells everything of a host in one go, and the reader of its answer.

A launcher sends `probe_argv` to a host, by whatever way it has, and gives the lines that come back to
`read_probe`. What is not told is not known: nothing here guesses.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files

from fabbench.hosts.answer import Answer
from fabbench.hosts.found import UNLIMITED, Gpu, Memory, Probe, Program
from fabbench.hosts.mpi import Mpi, read_version
from fabbench.hosts.network import default_interface, read_interfaces
from fabbench.hosts.places import LIBRARY_FOLDERS, PROGRAM_FOLDERS
from fabbench.hosts.providers import read_fi_info
from fabbench.hosts.rdma import read_devices

_SCRIPT = "probe.sh"
_SECTIONS = frozenset(
    {
        *("probe", "date", "uname", "os", "cpus", "memory", "memlock", "load", "disk", "disk.path", "end"),
        *("dmi.board_vendor", "dmi.sys_vendor", "dmi.product_name", "placement.zone", "placement.type"),
        *("ssh", "address", "address.bare", "link", "route", "netdev", "rdma", "uverbs"),
        *("fi_info", "fi_info.path", "fi_version", "efa.driver", "efa.installer"),
        *("gpu", "gpu.work", "nvidia.driver", "cuda", "library", "program", "tool", "mpi", "python"),
        *("setting", "file", "absent", "own"),
    }
)
_KIB = 1024
_MEMORY = {
    "MemTotal": "total",
    "MemAvailable": "available",
    "HugePages_Total": "huge_pages",
    "HugePages_Free": "huge_pages_free",
    "Hugepagesize": "huge_page_size",
}
_MEMORY_LINE = re.compile(r"(\w+): +([0-9]{1,15})( kB)?")
_TIME = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_TYPE = re.compile(r"(?:ml\.)?([a-z0-9-]+\.[a-z0-9-]+)")
_FREE = re.compile(r".* ([0-9]{1,15}) +[0-9]+% .*")
_DRIVER = re.compile(r"Module(?: +for \S+)? +([0-9][0-9.]*)")
_INSTALLER = re.compile(r"# EFA installer version: *(\S+)")
_LOAD = re.compile(r"[0-9]{1,9}\.[0-9]+")


def script() -> str:
    """Give the text of the probe, for hosts to which it is sent as ``sh -s -- ARGUMENTS``."""
    return (files("fabbench.hosts") / _SCRIPT).read_text("utf-8")


def probe_arguments(
    programs: Sequence[str] = (), bin_dirs: Sequence[str] = (), wanted: Sequence[str] = ()
) -> tuple[str, ...]:
    """Give the probe's arguments: programs to look for, in `bin_dirs` before anywhere else.

    `wanted` are folders that must be there; what the programs load from them is told.
    """
    options = (
        ("-p", programs), ("-d", bin_dirs), ("-u", PROGRAM_FOLDERS), ("-l", LIBRARY_FOLDERS), ("-e", wanted),
    )  # fmt: skip
    return tuple(word for option, values in options for value in values for word in (option, value))


def probe_argv(
    programs: Sequence[str] = (), bin_dirs: Sequence[str] = (), wanted: Sequence[str] = ()
) -> tuple[str, ...]:
    """Give the command that asks a host everything."""
    return ("sh", "-c", script(), "fabbench", *probe_arguments(programs, bin_dirs, wanted))


def read_probe(lines: Iterable[str]) -> Probe:
    """Read what the probe printed. Never raises: `Probe.unread` says what could not be read."""
    answer = Answer(lines, _SECTIONS)
    probe = Probe()
    for part in (_machine, _memory, _network, _rdma, _gpus, _software, _mpi, _settings):
        probe = part(answer, probe)
    whole = answer.first("probe") == "1" and answer.first("end") == "ok"
    return replace(probe, whole=whole, unread=tuple(answer.unread))


def _machine(answer: Answer, probe: Probe) -> Probe:
    words = answer.first("uname").split()
    if words and len(words) != 4:
        answer.cannot_read("uname", answer.first("uname"))
    _, name, kernel, arch = words if len(words) == 4 else [""] * 4
    time = _TIME.match(answer.first("date"))
    load = _LOAD.match(answer.first("load"))
    amazon = "Amazon EC2" in {answer.first("dmi.board_vendor"), answer.first("dmi.sys_vendor")}
    told = answer.first("dmi.product_name") if amazon else answer.first("placement.type")
    kind = _TYPE.fullmatch(told)
    return replace(
        probe,
        time_s=float(time[0]) if time else None,
        hostname=name,
        kernel=kernel,
        arch=arch,
        os=answer.first("os").strip("\"'"),
        cpus=answer.number("cpus", answer.first("cpus")),
        instance_type=kind[1] if kind else "",
        zone=answer.first("placement.zone"),
        load=float(load[0]) if load else None,
    )


def _memory(answer: Answer, probe: Probe) -> Probe:
    values: dict[str, int] = {}
    for line in answer.all("memory"):
        match = _MEMORY_LINE.fullmatch(line)
        if match and match[1] in _MEMORY:
            values[_MEMORY[match[1]]] = int(match[2]) * (_KIB if match[3] else 1)
        else:
            answer.cannot_read("memory", line)
    limit = answer.first("memlock")
    locked = UNLIMITED if limit == "unlimited" else answer.number("memlock", limit)
    free = [match for match in map(_FREE.fullmatch, answer.all("disk")) if match]
    return replace(
        probe,
        memory=Memory(**values),
        memlock=locked if locked is None or locked == UNLIMITED else locked * _KIB,
        temporary=answer.first("disk.path"),
        temporary_free=int(free[-1][1]) * _KIB if free else None,
    )


def _network(answer: Answer, probe: Probe) -> Probe:
    words = answer.first("ssh").split()
    return replace(
        probe,
        ssh_address=words[2] if len(words) == 4 else "",
        interfaces=read_interfaces(answer),
        default_interface=default_interface(answer),
    )


def _rdma(answer: Answer, probe: Probe) -> Probe:
    told = answer.first("uverbs")
    there, _, usable = told.partition(" ")
    absent = told == "absent"
    versions = (line.partition(": ")[2].strip() for line in answer.all("fi_version"))
    named = (line for line in answer.all("fi_version") if line.startswith("libfabric: "))
    return replace(
        probe,
        devices=tuple(read_devices(answer.all("rdma"), answer.unread)),
        verbs=None if absent else answer.number("uverbs", usable),
        verbs_there=0 if absent else answer.number("uverbs", there),
        domains=tuple(dict.fromkeys(read_fi_info(answer.all("fi_info")))),
        fi_info=answer.ran("fi_info"),
        fi_info_path=answer.first("fi_info.path"),
        libfabric=next((line.partition(": ")[2].strip() for line in named), next(versions, "")),
        efa_driver=answer.first("efa.driver"),
        efa_installer=next((m[1] for m in map(_INSTALLER.match, answer.all("efa.installer")) if m), ""),
    )


def _gpus(answer: Answer, probe: Probe) -> Probe:
    ran, work = answer.ran("gpu"), answer.ran("gpu.work")
    lines = answer.all("gpu") if ran.status == 0 else []
    module = _DRIVER.search(answer.first("nvidia.driver"))
    busy = [line for line in answer.all("gpu.work") if line.strip().isdecimal()]
    return replace(
        probe,
        gpus=tuple(gpu for line in lines if (gpu := _gpu(answer, line))),
        nvidia_smi=ran,
        gpu_processes=len(busy) if work.status == 0 else None,
        nvidia_driver=module[1] if module else "",
        cuda=tuple(line.rpartition("cuda-")[2] for line in answer.all("cuda")),
    )


def _gpu(answer: Answer, line: str) -> Gpu | None:
    """Read a line of nvidia-smi: index, name, driver, memory in MiB, ECC, bus, and the fabric where known."""
    cells = [cell.strip() for cell in line.split(",")]
    index = answer.number("GPU", cells[0])
    if index is None or len(cells) not in {6, 7}:
        answer.cannot_read("GPU", line)
        return None
    memory = int(cells[3]) if re.fullmatch(r"[0-9]{1,9}", cells[3]) else None
    fabric = "".join(cells[6:])
    return Gpu(
        index=index,
        name=cells[1],
        driver=cells[2],
        memory_mib=memory,
        ecc=_known(cells[4]),
        bus=cells[5],
        fabric=_known(fabric),
    )


def _known(text: str) -> str:
    return "" if text.strip("[]") in {"N/A", "Not Supported"} else text


def _software(answer: Answer, probe: Probe) -> Probe:
    programs, missing = {}, []
    for line in answer.all("program"):
        name, _, rest = line.partition("\t")
        path, _, size = rest.partition("\t")
        if path:
            programs[name] = Program(path=path, size=answer.number(f"size of {name}", size))
        else:
            missing.append(name)
    tools = (line.partition("\t") for line in answer.all("tool"))
    return replace(
        probe,
        programs=programs,
        missing=tuple(missing),
        absent=tuple(dict.fromkeys(answer.all("absent"))),
        own=tuple(dict.fromkeys(answer.all("own"))),
        tools={name: path for name, _, path in tools if path},
        libraries=tuple(dict.fromkeys(line for line in answer.all("library") if "*" not in line)),
        python=answer.first("python").removeprefix("Python ") if answer.ran("python").status == 0 else "",
    )


def _mpi(answer: Answer, probe: Probe) -> Probe:
    version = read_version(answer.all("mpi"))
    program = probe.programs.get("mpirun")
    mpi = Mpi(program=program.path, kind=version[0], version=version[1]) if version and program else None
    return replace(probe, mpi=mpi, mpi_said=answer.ran("mpi"))


def _settings(answer: Answer, probe: Probe) -> Probe:
    pairs = (line.partition("=") for line in answer.all("setting"))
    return replace(probe, settings={name: value for name, _, value in pairs}, files=tuple(answer.all("file")))
