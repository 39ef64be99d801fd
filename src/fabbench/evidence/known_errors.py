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
    severity: Severity

    def finding(self, line: str, **words: object) -> Finding:
        """Return the finding for a line; `words` fill in the texts."""
        meaning, advice = (text.format(**words) if words else text for text in (self.meaning, self.advice))
        quote = line.strip()[:LONGEST_QUOTE]
        return Finding(code=self.code, severity=self.severity, meaning=meaning, line=quote, advice=advice)


# Code and severity (a warning, if none is stated) with the texts of which a line must have one, if lines show it; the
# patterns of such lines, if a text alone does not do; what it means (=); and advice (>).
_TABLE = r"""
peer-unreachable, error: security group on either this instance or the peer | Unreachable remote | Unresponsive receiver
  = EFA packets do not reach the peer.
  > The security group must allow all traffic from and to itself (self-referencing rules, in and out), and all nodes
  > must be in one subnet and of one instance family.
libfabric-too-old: requires at least libfabric version
  = The plugin refuses this libfabric: it is too old for EFA.
  > Install a newer EFA installer bundle, and look for an older libfabric on LD_LIBRARY_PATH.
network-not-found, error: network | any NET plugin
    network .+ not found|Failed to initialize any NET plugin
  = The network that NCCL_NET names could not be loaded: the run failed instead of falling back.
  > Check that the plugin's library is on LD_LIBRARY_PATH of every rank, and that `fi_info -p efa` lists devices.
plugin-unsupported: is unsupported
    External network plugin .* is unsupported
  = NCCL cannot use this build of the network plugin.
  > Install an aws-ofi-nccl release made for this NCCL version.
provider-not-supported: Only EFA provider is supported | Couldn't find any optimal provider
  = The network plugin found no provider that it can use.
  > Check `fi_info -p efa` in the same container, with the same LD_LIBRARY_PATH.
gdr-disabled: GDR | GPU Direct RDMA Disabled
    GDR disabled on GDR-supported|Could not disable CUDA API usage for HMEM, disabling GDR
    Need to force simple protocol: GDR not supported|GPU Direct RDMA Disabled for HCA
  = GPU memory is not sent directly: every message is copied through the host.
  > Load nvidia-peermem or efa_nv_peermem, or use open kernel modules with dma-buf; p3dn, g4dn and g5 lack it.
gpu-memory-not-registered, error: register CUDA buffer | Unable to register memory
    Failed to register CUDA buffer with the EFA device|Unable to register memory \(type = 2\)
  = libfabric could not register GPU memory with the EFA device.
  > Update the EFA installer (1.29.1 or later with NCCL 2.19), or set FI_EFA_SET_CUDA_SYNC_MEMOPS=0.
write-emulated: FI_OPT_EFA_EMULATED_WRITE is true
  = RDMA writes are emulated in software.
  > Remove FI_EFA_USE_DEVICE_RDMA=0 from the environment, and update the EFA driver.
memlock, error: Cannot allocate memory | internal receive buffers | Call to ibv_
    Cannot allocate memory \(-12\)|Failure to post internal receive buffers
    Call to ibv_(?:reg_mr\w*|create_[qc]p?q?) failed
  = Memory could not be locked for the NIC.
  > Raise the memlock limit (`ulimit -l unlimited`; in a pod the IPC_LOCK capability).
shm-too-small, error: shared memory segment | failed to extend
    Error while creating shared memory segment|failed to extend .* to \d+ bytes
  = The shared memory directory is too small for NCCL.
  > Give the container a larger /dev/shm (a memory-backed volume in a pod).
fork-unsafe, error: A process has executed | FI_EFA_USE_HUGE_PAGE
    A process has executed an operation involving a call|FI_EFA_USE_HUGE_PAGE.*FI_EFA_FORK_SAFE
  = fork() was called while the NIC used the process's memory.
  > Do not set FI_EFA_USE_HUGE_PAGE=1 together with FI_EFA_FORK_SAFE=1; kernels from 5.15 need neither.
interface-not-found, error: Bootstrap : no socket interface found | NET/Socket : no interface found
  = No interface matches NCCL_SOCKET_IFNAME.
  > Specify the interface that the nodes share, or exclude others: NCCL_SOCKET_IFNAME=^docker,lo,veth.
nic-unreachable, error: ibv_modify_qp | to RTR
    Call to ibv_modify_qp failed with (?:error )?(?:\d+ )?(?:Network is unreach|Connection timed out|No route to)
    Failed to modify \w*\s*QP .*to RTR
  = A NIC has no route to the peer's NIC: the GID index does not fit, or the two are not on one network.
  > On RoCE, choose every node's RoCE v2 GID with an IPv4 address (`show_gids`): NCCL_IB_GID_INDEX, perftest -x.
  > Where NICs reach only those of the same rail, set NCCL_CROSS_NIC=0.
nic-retries-exceeded, error: Got completion from peer | Endpoint timeout
    Got completion from peer .*(?:(?:with error|status=)\s?12\b|RETRY_EXC_ERR)|UCX .*'Endpoint timeout'
  = The peer's NIC did not answer: transport retries were exceeded.
  > Test this pair with `fabbench run perftest`. Usual causes: a wrong RoCE GID index (NCCL_IB_GID_INDEX), an MTU or
  > priority flow control that differs along the path, NICs of other rails (NCCL_CROSS_NIC=0), a peer that ended first.
memory-access-refused, error: Got completion from peer
    Got completion from peer .*(?:(?:with error|status=)\s?(?:4|10)\b|LOC_PROT_ERR|REM_ACCESS_ERR)
  = A NIC was refused access to registered memory.
  > Run once with NCCL_NET_GDR_LEVEL=LOC: if that works, GPUDirect RDMA is at fault (nvidia-peermem, ACS, IOMMU).
endpoint-refused, error: NET/OFI Couldn't | NET/OFI Creating
    NET/OFI Couldn't (?:allocate endpoint|open AV|open CQ|bind EP-\w+|enable endpoint)
    NET/OFI Creating new endpoint for domain \S+ failed
  = libfabric did not open an endpoint on the NIC.
  > Set FI_LOG_LEVEL=warn to see libfabric's own reason, and run `fabbench run pingpong` with the same fabric. Usual
  > causes: a libfabric other than the EFA installer's on LD_LIBRARY_PATH, FI_* variables made for another version.
ssh-refused: Permission denied (
    Permission denied \((?:publickey|keyboard-interactive|password|gssapi|hostbased)
  = mpirun's ssh was refused by another host.
  > Hosts must be able to log in to each other without a prompt (ssh -o BatchMode=yes HOST true). `fabbench run --on
  > ssh` needs no ssh between hosts.
cuda-driver-too-old, error: CUDA driver version is insufficient for CUDA runtime version
  = The node's NVIDIA driver is older than the program's CUDA needs.
  > Update the driver (CUDA 13 needs 580, CUDA 12 needs 525), or use an image or build with an older CUDA.
gpu-not-supported, error: no kernel image is available for execution on the device
  = The program was not built for this kind of GPU.
  > Use an image or build that has it: CUDA 13 dropped Volta (V100) and older, and new GPUs need a new CUDA.
sharp-unavailable: SHARP coll init error | Cannot initialize CollNet, using point-to-point
  = SHARP could not be started: the switches do not reduce, and NCCL sends between NICs instead.
  > Check that sharp_am runs on the subnet manager's host, that it allows this job (quota of trees and ranks), and
  > SHARP_COLL_LOG_LEVEL=3. Without SHARP, set NCCL_COLLNET_ENABLE=0.
peer-closed: Connection closed by remote peer | remote process exited or there was a network error
  = A connection to another rank was lost.
  > Look for the rank that ended first: its own error is the cause.
peer-lost, error: Call to | onnect to
    Call to (?:recv|send|connect|accept|bind|listen)\b.*failed ?: |[Cc]onnect to \S+ failed ?:
    onnect to \S+ returned .*exceeded
  = A rank could not reach another one over a socket.
  > Look for the rank that ended first: its own error is the cause. Otherwise check NCCL_SOCKET_IFNAME and the
  > firewalls between the nodes.
duplicate-gpu, error: Duplicate GPU detected
  = Two ranks use the same GPU.
  > Give each rank a GPU of its own: CUDA_VISIBLE_DEVICES, the local rank, and the slots per host.
port-down, error: Got async event
    Got async event ?: (?:port error|device fatal|QP fatal)
  = A port or a NIC failed during the run.
  > Check the cable and the switch port of this NIC (`ibstat`, `dmesg`).
imex, error: MNNVL (cliqueSize
    MNNVL \(cliqueSize \d+\) is available but not
  = GPUs of other hosts cannot be reached by NVLink: there is no working IMEX domain.
  > Check `nvidia-imex-ctl -N`. Pods need a claim of a ComputeDomain that has all nodes: docs/kubernetes.md.
fabric-manager, error: system not yet initialized
  = The GPUs' fabric manager is not ready (CUDA error 802).
  > Wait for `nvidia-smi -q` to show Fabric State: Completed, or restart nvidia-fabricmanager.
nic-call-failed, error: Call to ibv_ | completed with error
    Call to ibv_(?!modify_qp|reg_mr|create_[qc]|reg_dmabuf)\w+ failed|NET/OFI .*completed with error
  = A NIC or its driver refused a call, or a transfer.
  > Look for errors of this NIC in `dmesg`, and test it alone: `fabbench run perftest`, `run pingpong`.
ranks-differ, error: Message truncated | ismatch
    Message truncated : received|[Mm]ismatched? (?:collective|in NCCL)|NCCL version mismatch
  = The ranks do not call the same collective with the same size, or run different versions of NCCL.
  > Compare what each rank runs: its library, its arguments, and the order of its collectives.
cuda-failure, error: Cuda failure | HIP failure | CUDA error
    (?:(?:Cuda|HIP) failure|CUDA error \d) ?(?!.*system not yet initialized)
  = A CUDA call failed.
  > The quoted text has CUDA's reason. Check the driver, the GPU's memory and its errors (`nvidia-smi`, `dmesg`).
slingshot-timeouts: MPICH Slingshot
    MPICH Slingshot Network Summary: [1-9]\d* network timeouts
  = The network had timeouts during the run.
  > Check the links and the switch counters of these nodes.
one-machine:
  = The ranks print {hosts} host names, and NCCL found one machine: nothing went over a network.
  > Use NCCL_HOSTID or hosts of their own to measure between machines.
networks-disagree, error:
  = The ranks do not use the same network ({users}).
  > Use the same plugin and library path on every node: ranks that disagree hang.
nics-disagree:
  = The ranks did not find the same number of NICs: {fewest} to {most} ({fewest} on {where}).
  > Compare `{command}` on these nodes with the number that they should have.
nics-unused, error:
  = The ranks found {found} NICs, and the channels of all ranks use {used} of them.
  > Check the topology file, NCCL_IB_HCA and the affinity of GPUs and NICs (`nvidia-smi topo -m`).
nics-unchecked:
  = The ranks used {nics}. Nothing states how many the nodes have, so fewer would not be noticed.
  > Pass --instance-type, such as p5.48xlarge, or --nics.
nccl-warning:
  = NCCL warned{times}.
  > Search NCCL's issues for this text.
plugin-failed:
  = The network plugin failed{fallback}.
  > {check}Set NCCL_NET to the network that you expect: the run then fails without it.
plugin-missing, note:
  = The network plugin was not found{fallback}.
  > {check}Set NCCL_NET to the network that you expect: the run then fails without it.
wrong-interface:
  = NCCL's sockets use {names}, which does not lead to other nodes.
  > Set NCCL_SOCKET_IFNAME to the nodes' own interface, or to ^docker,lo,veth.
provider-not-efa:
  = libfabric's tcp provider carried the data, which is not EFA.
  > If EFA was meant, check `fi_info -p efa` in the same container, with the same LD_LIBRARY_PATH.
gdr-off:
  = GPUDirect RDMA was used on {where}: the other messages were copied through the host.
  > Check nvidia-peermem or DMA-BUF, NCCL_NET_GDR_LEVEL, and the affinity of GPUs and NICs.
one-iteration:
  = Each figure is of one iteration without warm-up: set-up counts as transfer.
  > Measure with the defaults (20 iterations, 5 for warm-up) before you compare.
instance-type-differs:
  = The log says {stated}, and not {said}: it is judged as the former.
collective-timeout, error:
  = {waits}.{late}
  > Look at {whom}: one that ended, calls other collectives, or is busy before this one keeps others waiting.
ranks-missing, error:
  = {said}.
  > Look at what the missing ranks do, or how they ended.
ras-mismatch:
  = NCCL's RAS: {said}.
  > Query again: counts that stay apart are a hang. Then look at the ranks with fewer operations (py-spy dump).
ras-timeout:
  = NCCL's RAS: {said}.
  > It did not get all answers in time: query again.
ras-incomplete, error:
  = NCCL's RAS: {said}.
  > This process does not answer: look at it, and at its node (`dmesg`, `nvidia-smi`).
too-much-output: printed more than
    ^fabbench: .+ (?:ended|aborted).*: it (?:had )?printed more than
  = The execution was aborted because it printed too much. Later output was not kept.
  > Check what fills the log. NCCL_DEBUG=INFO, without NCCL_DEBUG_SUBSYS, shows the network.
debug-output-lost: The debug output of ranks on
    ^fabbench: The debug output of ranks on .+ is lost:
  = A host was unreachable after the measurement, so its ranks' debug output is missing.
  > Check the cluster's DNS and the host's sshd: the line in the log says why.
"""


def _errors() -> Iterator[KnownError]:
    """Yield the errors of the table."""
    for block in re.split(r"\n(?=\w)", _TABLE.strip()):
        head, *lines = block.split("\n")
        name, _, words = head.partition(":")
        code, _, severity = name.partition(", ")
        texts = tuple(words.strip().split(" | "))
        patterns, *said = ([line[4:] for line in lines if line[:4] == sign] for sign in ("    ", "  = ", "  > "))
        pattern = lazy("|".join(patterns or map(re.escape, texts)))
        meaning, advice = map(" ".join, said)
        yield KnownError(code, texts, pattern, meaning, advice, Severity(severity or "warning"))


_BY_CODE = {error.code: error for error in _errors()}
KNOWN_ERRORS: tuple[KnownError, ...] = tuple(error for error in _BY_CODE.values() if error.pattern.pattern)


def finding(code: str, line: str = "", **words: object) -> Finding:
    """Return a finding of the table; `words` fill in its texts."""
    return _BY_CODE[code].finding(line, **words)


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
