"""Lines of logs that show what is wrong: what each means, and what to do about it. Data; pure.

The texts were read in the sources of NCCL, aws-ofi-nccl and libfabric; docs/formats.md says where.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fabbench.model import Finding, Severity

LONGEST_QUOTE = 300
"""Characters of a line that a finding shows."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """A line by its pattern, and what it says."""

    code: str
    pattern: re.Pattern[str]
    meaning: str
    advice: str
    severity: Severity = Severity.WARNING

    def finding(self, line: str) -> Finding:
        """Make the finding that a line shows."""
        return Finding(
            code=self.code,
            severity=self.severity,
            meaning=self.meaning,
            line=line.strip()[:LONGEST_QUOTE],
            advice=self.advice,
        )


def _symptom(
    code: str, pattern: str, meaning: str, advice: str, severity: Severity = Severity.WARNING
) -> Symptom:
    return Symptom(code, re.compile(pattern), meaning, advice, severity)


_SECURITY_GROUP = (
    "The security group must allow all traffic from and to itself (both directions, by its own name), and "
    "all nodes must be in one subnet and of one instance family."
)

SYMPTOMS: tuple[Symptom, ...] = (
    _symptom(
        "peer-unreachable",
        r"security group on either this instance or the peer|Unreachable remote|Unresponsive receiver",
        "EFA packets do not reach the peer.",
        _SECURITY_GROUP,
        Severity.ERROR,
    ),
    _symptom(
        "libfabric-too-old",
        r"requires at least libfabric version",
        "The plugin refuses this libfabric: it is too old for EFA.",
        "Install a newer EFA installer bundle, and look for an older libfabric on LD_LIBRARY_PATH.",
        Severity.ERROR,
    ),
    _symptom(
        "network-not-found",
        r"network .+ not found",
        "The network that NCCL_NET names could not be loaded: the run failed instead of falling back.",
        "Check that the plugin's library is on LD_LIBRARY_PATH of every rank, and that `fi_info -p efa` "
        "lists devices.",
        Severity.ERROR,
    ),
    _symptom(
        "plugin-unsupported",
        r"External network plugin .* is unsupported",
        "NCCL cannot use this build of the network plugin.",
        "Install an aws-ofi-nccl release made for this NCCL version.",
    ),
    _symptom(
        "provider-not-supported",
        r"Only EFA provider is supported|Couldn't find any optimal provider",
        "The network plugin found no provider that it can use.",
        "Check `fi_info -p efa` in the same container, with the same LD_LIBRARY_PATH.",
    ),
    _symptom(
        "gdr-disabled",
        r"GDR disabled on GDR-supported|Could not disable CUDA API usage for HMEM, disabling GDR"
        r"|Need to force simple protocol: GDR not supported|GPU Direct RDMA Disabled for HCA",
        "GPU memory is not sent directly: every message is copied through the host.",
        "Load nvidia-peermem or efa_nv_peermem, or use open kernel modules with dma-buf; p3dn, g4dn and g5 "
        "do not have it.",
    ),
    _symptom(
        "gpu-memory-not-registered",
        r"Failed to register CUDA buffer with the EFA device|Unable to register memory \(type = 2\)",
        "libfabric could not register GPU memory with the EFA device.",
        "Update the EFA installer (1.29.1 or later with NCCL 2.19), or set FI_EFA_SET_CUDA_SYNC_MEMOPS=0.",
        Severity.ERROR,
    ),
    _symptom(
        "write-emulated",
        r"FI_OPT_EFA_EMULATED_WRITE is true",
        "RDMA writes are emulated in software.",
        "Remove FI_EFA_USE_DEVICE_RDMA=0 from the environment, and update the EFA driver.",
    ),
    _symptom(
        "memlock",
        r"Cannot allocate memory \(-12\)|Failure to post internal receive buffers",
        "Memory could not be locked for the NIC.",
        "Raise the memlock limit (`ulimit -l unlimited`; in a pod the IPC_LOCK capability).",
        Severity.ERROR,
    ),
    _symptom(
        "shm-too-small",
        r"Error while creating shared memory segment|failed to extend .* to \d+ bytes",
        "The shared memory folder is too small for NCCL.",
        "Give the container a larger /dev/shm (a memory-backed volume in a pod).",
        Severity.ERROR,
    ),
    _symptom(
        "fork-unsafe",
        r"A process has executed an operation involving a call|FI_EFA_USE_HUGE_PAGE.*FI_EFA_FORK_SAFE",
        "A fork() met memory that the NIC uses.",
        "Do not set FI_EFA_USE_HUGE_PAGE=1 together with FI_EFA_FORK_SAFE=1; kernels from 5.15 need neither.",
        Severity.ERROR,
    ),
    _symptom(
        "interface-not-found",
        r"Bootstrap : no socket interface found|NET/Socket : no interface found",
        "No interface matches NCCL_SOCKET_IFNAME.",
        "Name the interface that the nodes share, or exclude others: NCCL_SOCKET_IFNAME=^docker,lo,veth.",
        Severity.ERROR,
    ),
    _symptom(
        "peer-closed",
        r"Connection closed by remote peer|remote process exited or there was a network error",
        "A connection to another rank was lost.",
        "Look for the rank that ended first: its own error is the cause.",
    ),
    _symptom(
        "fabric-manager",
        r"system not yet initialized",
        "The GPUs' fabric manager is not ready (CUDA error 802).",
        "Wait for `nvidia-smi -q` to show Fabric State: Completed, or restart nvidia-fabricmanager.",
        Severity.ERROR,
    ),
    _symptom(
        "slingshot-timeouts",
        r"MPICH Slingshot Network Summary: [1-9]\d* network timeouts",
        "The network had time-outs during the run.",
        "Check the links and the switch counters of these nodes.",
    ),
)

PLUGIN_FAILED = re.compile(
    r"No eligible providers|initialization failed|Initializing plugin failed"
    r"|Failed to initialize (?!NET plugin (?:IB|Socket)\b)|Unable to find a protocol"
)
"""Said when the network plugin gave up; also once per protocol it tries, in runs that go well."""

HARMLESS = re.compile(
    r"GIN only supports RDMA|Finalizing already finalized|Failed to open libibverbs"
    r"|TUNER/Plugin|PROFILER/Plugin"
)
"""Warnings of healthy runs."""

_NUMBER = re.compile(r"0x[\da-fA-F]+|\d+")

_QUICK = re.compile("|".join(f"(?:{symptom.pattern.pattern})" for symptom in SYMPTOMS))


def symptoms(text: str) -> Iterator[Symptom]:
    """Find what a line shows; usually nothing."""
    if _QUICK.search(text):
        yield from (symptom for symptom in SYMPTOMS if symptom.pattern.search(text))


def alike(said: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Put texts together that only differ in numbers: the first of each, and how often it was said.

    `said` has texts, and how often each was said.
    """
    found: dict[str, tuple[str, int]] = {}
    for text, times in said:
        kind = _NUMBER.sub("0", text)
        first, before = found.get(kind, (text, 0))
        found[kind] = first, before + times
    return list(found.values())


def often(times: int) -> str:
    """Say how often, for behind a verb; nothing where it was once."""
    return "" if times == 1 else f" {times} times"
