"""Lines of programs and launchers that show what is wrong, what each means, and what to do. Data; pure.

The texts come from the sources of NCCL, aws-ofi-nccl and libfabric; docs/formats.md lists where.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fabbench.model.log import Finding, Severity
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy


@dataclass(frozen=True, slots=True)
class KnownError:
    """The pattern of a line, and what the line means."""

    code: str
    words: tuple[str, ...]
    """Every line that the pattern matches contains one of these, so they are searched for first."""
    pattern: re.Pattern[str]
    meaning: str
    advice: str
    severity: Severity = Severity.WARNING

    def finding(self, line: str) -> Finding:
        """Make the finding for a matching line."""
        return Finding(
            code=self.code,
            severity=self.severity,
            meaning=self.meaning,
            line=line.strip()[:LONGEST_QUOTE],
            advice=self.advice,
        )


def _known(  # noqa: PLR0913, PLR0917 - one parameter per column of the table below
    code: str, words: tuple[str, ...], pattern: str, meaning: str, advice: str, severity: Severity = Severity.WARNING
) -> KnownError:
    return KnownError(code, words, lazy(pattern), meaning, advice, severity)


KNOWN_ERRORS: tuple[KnownError, ...] = (
    _known(
        "peer-unreachable",
        ("security group", "Unreachable remote", "Unresponsive receiver"),
        r"security group on either this instance or the peer|Unreachable remote|Unresponsive receiver",
        "EFA packets do not reach the peer.",
        "The security group must allow all traffic from and to itself (both directions, by its own name), and "
        "all nodes must be in one subnet and of one instance family.",
        Severity.ERROR,
    ),
    _known(
        "libfabric-too-old",
        ("requires at least libfabric",),
        r"requires at least libfabric version",
        "The plugin refuses this libfabric: it is too old for EFA.",
        "Install a newer EFA installer bundle, and look for an older libfabric on LD_LIBRARY_PATH.",
    ),
    _known(
        "network-not-found",
        ("network ", "any NET plugin"),
        r"network .+ not found|Failed to initialize any NET plugin",
        "The network that NCCL_NET names could not be loaded: the run failed instead of falling back.",
        "Check that the plugin's library is on LD_LIBRARY_PATH of every rank, and that `fi_info -p efa` lists devices.",
        Severity.ERROR,
    ),
    _known(
        "plugin-unsupported",
        ("is unsupported",),
        r"External network plugin .* is unsupported",
        "NCCL cannot use this build of the network plugin.",
        "Install an aws-ofi-nccl release made for this NCCL version.",
    ),
    _known(
        "provider-not-supported",
        ("Only EFA provider", "optimal provider"),
        r"Only EFA provider is supported|Couldn't find any optimal provider",
        "The network plugin found no provider that it can use.",
        "Check `fi_info -p efa` in the same container, with the same LD_LIBRARY_PATH.",
    ),
    _known(
        "gdr-disabled",
        ("GDR", "GPU Direct RDMA Disabled"),
        r"GDR disabled on GDR-supported|Could not disable CUDA API usage for HMEM, disabling GDR"
        r"|Need to force simple protocol: GDR not supported|GPU Direct RDMA Disabled for HCA",
        "GPU memory is not sent directly: every message is copied through the host.",
        "Load nvidia-peermem or efa_nv_peermem, or use open kernel modules with dma-buf; p3dn, g4dn and g5 "
        "do not have it.",
    ),
    _known(
        "gpu-memory-not-registered",
        ("register CUDA buffer", "Unable to register memory"),
        r"Failed to register CUDA buffer with the EFA device|Unable to register memory \(type = 2\)",
        "libfabric could not register GPU memory with the EFA device.",
        "Update the EFA installer (1.29.1 or later with NCCL 2.19), or set FI_EFA_SET_CUDA_SYNC_MEMOPS=0.",
        Severity.ERROR,
    ),
    _known(
        "write-emulated",
        ("FI_OPT_EFA_EMULATED_WRITE",),
        r"FI_OPT_EFA_EMULATED_WRITE is true",
        "RDMA writes are emulated in software.",
        "Remove FI_EFA_USE_DEVICE_RDMA=0 from the environment, and update the EFA driver.",
    ),
    _known(
        "memlock",
        ("Cannot allocate memory", "internal receive buffers", "Call to ibv_"),
        r"Cannot allocate memory \(-12\)|Failure to post internal receive buffers"
        r"|Call to ibv_(?:reg_mr\w*|create_[qc]p?q?) failed",
        "Memory could not be locked for the NIC.",
        "Raise the memlock limit (`ulimit -l unlimited`; in a pod the IPC_LOCK capability).",
        Severity.ERROR,
    ),
    _known(
        "shm-too-small",
        ("shared memory segment", "failed to extend"),
        r"Error while creating shared memory segment|failed to extend .* to \d+ bytes",
        "The shared memory directory is too small for NCCL.",
        "Give the container a larger /dev/shm (a memory-backed volume in a pod).",
        Severity.ERROR,
    ),
    _known(
        "fork-unsafe",
        ("A process has executed", "FI_EFA_USE_HUGE_PAGE"),
        r"A process has executed an operation involving a call|FI_EFA_USE_HUGE_PAGE.*FI_EFA_FORK_SAFE",
        "fork() was called while the NIC used the process's memory.",
        "Do not set FI_EFA_USE_HUGE_PAGE=1 together with FI_EFA_FORK_SAFE=1; kernels from 5.15 need neither.",
        Severity.ERROR,
    ),
    _known(
        "interface-not-found",
        ("interface found",),
        r"Bootstrap : no socket interface found|NET/Socket : no interface found",
        "No interface matches NCCL_SOCKET_IFNAME.",
        "Specify the interface that the nodes share, or exclude others: NCCL_SOCKET_IFNAME=^docker,lo,veth.",
        Severity.ERROR,
    ),
    _known(
        "nic-unreachable",
        ("ibv_modify_qp", "to RTR"),
        r"Call to ibv_modify_qp failed with (?:error )?(?:\d+ )?(?:Network is unreachable|Connection timed out"
        r"|No route to host)|Failed to modify \w*\s*QP .*to RTR",
        "A NIC has no route to the peer's NIC: the GID index does not fit, or the two are not on one network.",
        "On RoCE, choose every node's RoCE v2 GID with an IPv4 address (`show_gids`): NCCL_IB_GID_INDEX, perftest -x. "
        "Where NICs reach only those of the same rail, set NCCL_CROSS_NIC=0.",
        Severity.ERROR,
    ),
    _known(
        "nic-retries-exceeded",
        ("Got completion from peer", "Endpoint timeout"),
        r"Got completion from peer .*(?:(?:with error|status=)\s?12\b|RETRY_EXC_ERR)|UCX .*'Endpoint timeout'",
        "The peer's NIC did not answer: transport retries were exceeded.",
        "Test this pair with `fabbench run perftest`. Usual causes are a wrong RoCE GID index "
        "(NCCL_IB_GID_INDEX), an MTU or priority flow control that differs along the path, NICs of different "
        "rails (NCCL_CROSS_NIC=0), or a peer that ended first.",
        Severity.ERROR,
    ),
    _known(
        "memory-access-refused",
        ("Got completion from peer",),
        r"Got completion from peer .*(?:(?:with error|status=)\s?(?:4|10)\b|LOC_PROT_ERR|REM_ACCESS_ERR)",
        "A NIC was refused access to registered memory.",
        "Run once with NCCL_NET_GDR_LEVEL=LOC: if that works, GPUDirect RDMA is at fault (nvidia-peermem, ACS, IOMMU).",
        Severity.ERROR,
    ),
    _known(
        "endpoint-refused",
        ("NET/OFI Couldn't", "NET/OFI Creating"),
        r"NET/OFI (?:Couldn't (?:allocate endpoint|open AV|open CQ|bind EP-\w+|enable endpoint)"
        r"|Creating new endpoint for domain \S+ failed)",
        "libfabric did not open an endpoint on the NIC.",
        "Set FI_LOG_LEVEL=warn to see libfabric's own reason, and run `fabbench run pingpong` with the same "
        "fabric. Usual causes are a libfabric other than the EFA installer's on LD_LIBRARY_PATH, and FI_* "
        "variables made for another version.",
        Severity.ERROR,
    ),
    _known(
        "ssh-refused",
        ("Permission denied (",),
        r"Permission denied \((?:publickey|keyboard-interactive|password|gssapi|hostbased)",
        "mpirun's ssh was refused by another host.",
        "Hosts must be able to log in to each other without a prompt (ssh -o BatchMode=yes HOST true). "
        "`fabbench run --on ssh` needs no ssh between hosts.",
    ),
    _known(
        "cuda-driver-too-old",
        ("CUDA driver version is insufficient",),
        r"CUDA driver version is insufficient for CUDA runtime version",
        "The node's NVIDIA driver is older than the program's CUDA needs.",
        "Update the driver (CUDA 13 needs 580, CUDA 12 needs 525), or use an image or build with an older CUDA.",
        Severity.ERROR,
    ),
    _known(
        "gpu-not-supported",
        ("no kernel image is available",),
        r"no kernel image is available for execution on the device",
        "The program was not built for this kind of GPU.",
        "Use an image or build that has it: CUDA 13 dropped Volta (V100) and older, and new GPUs need a new CUDA.",
        Severity.ERROR,
    ),
    _known(
        "peer-closed",
        ("Connection closed", "remote process exited"),
        r"Connection closed by remote peer|remote process exited or there was a network error",
        "A connection to another rank was lost.",
        "Look for the rank that ended first: its own error is the cause.",
    ),
    _known(
        "peer-lost",
        ("Call to ", "onnect to "),
        r"Call to (?:recv|send|connect|accept|bind|listen)\b.*failed ?: |[Cc]onnect to \S+ failed ?: "
        r"|onnect to \S+ returned .*exceeded",
        "A rank could not reach another one over a socket.",
        "Look for the rank that ended first: its own error is the cause. Otherwise check NCCL_SOCKET_IFNAME "
        "and the firewalls between the nodes.",
        Severity.ERROR,
    ),
    _known(
        "duplicate-gpu",
        ("Duplicate GPU",),
        r"Duplicate GPU detected",
        "Two ranks use the same GPU.",
        "Give each rank a GPU of its own: CUDA_VISIBLE_DEVICES, the local rank, and the slots per host.",
        Severity.ERROR,
    ),
    _known(
        "port-down",
        ("Got async event",),
        r"Got async event ?: (?:port error|device fatal|QP fatal)",
        "A port or a NIC failed during the run.",
        "Check the cable and the switch port of this NIC (`ibstat`, `dmesg`).",
        Severity.ERROR,
    ),
    _known(
        "imex",
        ("MNNVL (cliqueSize",),
        r"MNNVL \(cliqueSize \d+\) is available but not",
        "GPUs of other hosts cannot be reached by NVLink: there is no working IMEX domain.",
        "Check `nvidia-imex-ctl -N`. Pods need a claim of a ComputeDomain that has all nodes: docs/kubernetes.md.",
        Severity.ERROR,
    ),
    _known(
        "fabric-manager",
        ("system not yet initialized",),
        r"system not yet initialized",
        "The GPUs' fabric manager is not ready (CUDA error 802).",
        "Wait for `nvidia-smi -q` to show Fabric State: Completed, or restart nvidia-fabricmanager.",
        Severity.ERROR,
    ),
    _known(
        "nic-call-failed",
        ("Call to ibv_", "completed with error"),
        r"Call to ibv_(?!modify_qp|reg_mr|create_[qc]|reg_dmabuf)\w+ failed|NET/OFI .*completed with error",
        "A NIC or its driver refused a call, or a transfer.",
        "Look for errors of this NIC in `dmesg`, and test it alone: `fabbench run perftest`, `run pingpong`.",
        Severity.ERROR,
    ),
    _known(
        "ranks-differ",
        ("Message truncated", "ismatch"),
        r"Message truncated : received|[Mm]ismatched? (?:collective|in NCCL)|NCCL version mismatch",
        "The ranks do not call the same collective with the same size, or run different versions of NCCL.",
        "Compare what each rank runs: its library, its arguments, and the order of its collectives.",
        Severity.ERROR,
    ),
    _known(
        "cuda-failure",
        ("Cuda failure", "HIP failure", "CUDA error"),
        r"(?:(?:Cuda|HIP) failure|CUDA error \d) ?(?!.*system not yet initialized)",
        "A CUDA call failed.",
        "The quoted text has CUDA's reason. Check the driver, the GPU's memory and its errors (`nvidia-smi`, `dmesg`).",
        Severity.ERROR,
    ),
    _known(
        "slingshot-timeouts",
        ("MPICH Slingshot",),
        r"MPICH Slingshot Network Summary: [1-9]\d* network timeouts",
        "The network had timeouts during the run.",
        "Check the links and the switch counters of these nodes.",
    ),
    _known(
        "too-much-output",
        ("printed more than",),
        r"^fabbench: .+ (?:ended|aborted).*: it (?:had )?printed more than ",
        "The execution was aborted because it printed too much. Later output was not kept.",
        "Check what fills the log. NCCL_DEBUG=INFO, without NCCL_DEBUG_SUBSYS, shows the network.",
    ),
    _known(
        "debug-output-lost",
        ("The debug output of ranks on",),
        r"^fabbench: The debug output of ranks on .+ is lost: ",
        "A host was unreachable after the measurement, so its ranks' debug output is missing.",
        "Check the cluster's DNS and the host's sshd: the line in the log says why.",
    ),
)

PLUGIN_FAILED = lazy(
    r"No eligible providers|initialization failed|Initializing plugin failed"
    r"|Failed to initialize (?!NET plugin (?:IB|Socket)\b)|Unable to find a protocol"
)
"""Printed when the network plugin gives up, but also once per protocol it tries in healthy runs."""

NOT_THE_NETWORK = lazy(r"\bGIN\b|\bgin:")
"""GPU-initiated networking, which NCCL 2.29+ tries besides the network: healthy runs have none."""

HARMLESS = lazy(
    r"GIN only supports RDMA|Failed to initialize any GIN plugin|Finalizing already finalized"
    r"|Failed to open libibverbs|TUNER/Plugin|PROFILER/Plugin"
)
"""Warnings that healthy runs print too."""


def matching_errors(text: str) -> Iterator[KnownError]:
    """Yield the known errors that a line shows; usually none."""
    for error in KNOWN_ERRORS:
        for word in error.words:
            if word in text:
                if error.pattern.search(text):
                    yield error
                break


_STATUS = lazy(r"(?:\[exit status: (\d{1,9})\]|# exit status: (\d{1,9}))")


def exit_status(text: str) -> int | None:
    """Parse a line with the exit status of the output recorded above it; None for any other line."""
    match = _STATUS.fullmatch(text.strip()) if "exit status: " in text else None
    return int(match[1] or match[2]) if match else None


def is_significant(text: str) -> bool:
    """Return whether a line unknown to all benchmarks shows an error, an exit status, or a request."""
    return exit_status(text) is not None or "FI_PROVIDER" in text or any(matching_errors(text))
