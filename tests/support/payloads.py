"""What somebody may have planted in a log, a name or a cluster, and what of it must not be in any output."""

import re
from collections.abc import Iterator

PAYLOADS = {
    "osc": "\x1b]0;PWNED\x07",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "csi": "\x1b[2J\x1b[31m",
    "c1": "\x9b31m",
    "bidi": "\u202eEVIL\u2066",
    "backspace": "\x08\x08\x08OK",
    "return": "\rFAKE",
    "nul": "\x00",
    "delete": "\x7f",
    "html": "<script>alert(1)</script>",
    "markdown": "a|b`c`[x](http://e)*z*",
    "formula": "=cmd|'/C calc'!A0",
    "lines": "x\u2028y\x0bz\x0cw\x85v",
    "invisible": "a\u200bb\U000e0041",
    "dcs": "\x1bP1$r\x1b\\",
    "charset": "\x1b(0",
    "command": "##[stop-commands]PWNED ##vso[task.complete]x #\x1b[1m#[add-mask]0 ##teamcity[x]",
    "line": "x\n::add-mask::e\n \u3000::stop-commands::PWNED",
}
OBEYED = re.compile(
    r"##\w*\[|(?m:^)\s*::[A-Za-z]|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""None of these may be in anything that a terminal or a CI system gets."""
_LOG = """\
# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid    833 on         vm device  0 [0000:18:00] NVIDIA H200
#  Rank  1 Group  0 Pid    834 on         vm device  1 [0000:2a:00] NVIDIA H200
vm:833:833 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>
vm:833:833 [0] NCCL INFO Assigned NET plugin Socket to comm
vm:833:833 [0] NCCL INFO Using network Socket
vm:833:833 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
NCCL version 2.28.9+cuda13.0
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root    time  algbw  busbw #wrong    time  algbw  busbw #wrong
#        (B)    (elements)                               (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)
           8             2     float     sum      -1  10.00   0.00   0.00      0  10.00   0.00   0.00      0
          16             4     float     sum      -1  10.00   0.00   0.00      0  10.00   0.00   0.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.001
#
# Collective test concluded: all_reduce_perf
"""
_SPOTS = {
    "host": ("on         vm", "on v{}m"),
    "device": ("NVIDIA H200", "NVIDIA {}"),
    "program": ("all_reduce_perf", "all{}_perf"),
    "version": ("2.19.6", "2.{}"),
    "library": ("2.28.9+cuda13.0", "2.28.9{}"),
    "prefix": ("vm:833:833", "v{}m:833:833"),
    "interface": ("lo:127.0.0.1<0>", "l{}o:127.0.0.1<0>"),
    "channel": ("NET/Socket/0", "NET/{}/0"),
    "plugin": ("plugin Socket", "plugin {}"),
    "network": ("network Socket", "network {}"),
    "row": ("16             4     float", "16   {}   float"),
    "type": ("4     float", "4     {}"),
    "operation": ("float     sum", "float     {}"),
}
_LINES = {
    "failure": "vm: Test NCCL failure common.cu:1 'bad {} / x'\n",
    "warning": ("vm:833:833 [0] NCCL WARN something {} broke\nvm:834:834 [0] x.cc:1 NCCL WARN Net/Socket : x {}\n"),
    "task": "srun: error: node{}: task 0: Exited with exit code 1\n",
    "job": "slurmstepd: error: *** STEP 1.0 ON {} CANCELLED AT x DUE TO TIME LIMIT ***\n",
    "marker": "#@fabbench begin 000-a{}-r1/x benchmark=nccl label={}\n",
}
FIELDS = (*_SPOTS, *_LINES)


def planted(field: str, payload: str) -> str:
    """Return a log in one field of which a payload is."""
    if field in _LINES:
        return _LINES[field].replace("{}", payload) + _LOG
    before, after = _SPOTS[field]
    assert before in _LOG
    return _LOG.replace(before, after.replace("{}", payload))


def logs(payload: str) -> Iterator[tuple[str, str]]:
    """Yield a name and a log for each field that a log has."""
    for field in FIELDS:
        yield field, planted(field, payload)
