"""The ways in which lines of a benchmark are found in logs: behind which prefix, and as part of what."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

Form = Callable[[int, str], str]
"""Line number (from 1) and text → the line in the log."""

_START = datetime(2026, 5, 1, 10, 0, 0, tzinfo=UTC)


def _at(number: int) -> datetime:
    return _START + timedelta(milliseconds=37 * number)


def _template(template: str) -> Form:
    """`%` codes are those of strftime; `{n}` is the line's number, `{ms}` the time's milliseconds."""

    def line(number: int, text: str) -> str:
        time = _at(number)
        before = time.strftime(template.replace("{n}", str(number)))
        return before.replace("{ms}", f"{time.microsecond // 1000:03d}") + text

    return line


def _docker_json(number: int, text: str) -> str:
    entry = {"log": f"{text}\n", "stream": "stdout", "time": _at(number).isoformat()}
    return json.dumps(entry)


def _nested_json(number: int, text: str) -> str:
    return json.dumps({"@timestamp": _at(number).isoformat(), "kubernetes": {"pod": "a"}, "body": {"message": text}})


def _numbered(width: int, behind: str) -> Form:
    return lambda number, text: f"{number:{width}d}{behind}{text}"


FORMS: Mapping[str, Form] = {
    **{
        name: _template(template)
        for name, template in {
            "plain": "",
            "CRI, offset": "%FT%T.{ms}000789+00:00 stdout F ",
            "CRI": "%FT%T.{ms}000789Z stdout F ",
            "GitHub Actions": "%FT%T.{ms}0001Z ",
            "Intel MPI -l": "[0] ",
            "GCP textPayload": "textPayload: ",
            "MPIJob": "[worker-0] ",
            "Open MPI 4 --tag-output": "[1,0]<stdout>:",
            "Open MPI 5 --tag-output": "[prterun-node-1@1,0]<stdout>: ",
            "Open MPI 4 --tag-output, host": "[1,0][node0:4711]<stdout>: ",
            "Open MPI 4 --timestamp-output": "[%a %b %d %T %Y]<stdout>: ",
            "Open MPI 4, both": "[%a %b %d %T %Y][1,0]<stdout>: ",
            "Open MPI 5 --timestamp-output": "%a %b %d %T %Y<stdout>:",
            "Open MPI 5, both": "%a %b %d %T %Y[1,0]<stdout>:",
            "PALS --line-buffer -l": "x3006c0s1b1n0.hsn 0: ",
            "Ray": "(RayWorker pid=3590, ip=10.48.4.17) ",
            "Ray, colored": "\x1b[36m(RayWorker pid=3590, ip=10.48.4.17)\x1b[0m ",
            "SageMaker": "[1,mpirank:0,algo-1]<stdout>:",
            "SkyPilot": "(head, rank=0, pid=3808) ",
            "SkyPilot, ip": "(worker1, rank=1, pid=1, ip=10.0.0.2) ",
            "SkyPilot, ip first": "(worker1, rank=1, ip=10.0.0.2, pid=1) ",
            "SkyPilot, task": "(task, pid=12) ",
            "Modal": "[rank 0] ",
            "aws logs tail": "%FT%T.{ms}000+00:00 nccl/default/abc ",
            "CloudWatch Insights": "  | %FT%T.{ms}-07:00 | ",
            "clush -L": "10.3.35.83: ",
            "pdsh": "gpu-node-01: ",
            "diff": "+",
            "C comment": "// ",
            "docker compose": "nccl-launcher-1  | ",
            "dstack, aim": "worker-0: ",
            "flux --label-io, jsrun, srun -l": "0: ",
            "srun -l, padded": " 0: ",
            "hydra -prepend-rank": "[0] ",
            "gh run view --log": "nccl\tRun tests\t%FT%T.{ms}0001Z ",
            "grep -H": "slurm-1234.out:",
            "grep -n": "{n}:",
            "journalctl -o short-iso": "%FT%T+0000 gpu01 nccl-tests[4242]: ",
            "journalctl": "May 01 %T gpu01 nccl-tests[4242]: ",
            "jupyter": "stdout: ",
            "kubectl --prefix --timestamps": "[pod/nccl-launcher-abcde/mpi-launcher] %FT%T.{ms}000789Z ",
            "kubectl --prefix": "[pod/nccl-launcher-abcde/mpi-launcher] ",
            "kubectl --timestamps, offset": "%FT%T.{ms}000789+02:00 ",
            "kubectl --timestamps": "%FT%T.{ms}000789Z ",
            "Markdown code": "    ",
            "nerdctl, Volcano": "[gpu01] ",
            "pipes": "| ",
            "python INFO": "INFO:root:",
            "python logging": "%F %T,{ms} - runner - INFO - ",
            "quote": "> ",
            "quote of a quote": "> > ",
            "PyTorch": "[rank0]: ",
            "stern": "nccl-launcher-abcde mpi-launcher ",
            "tab": "\t",
            "torchrun --tee": "[default0]:",
            "torchx": "trainer/0 ",
            "ts": "May 01 %T ",
            "ts %F": "%F %T ",
            "ts, brackets": "[%F %T] ",
            "ts %s": "17145576{n}.{ms} ".replace("{n}", "00"),
            "docker build": "#12 {n}.{ms} ",
            "srun -l in journald": "May 01 %T gpu01 slurm[77]: 0: ",
        }.items()
    },
    "CRLF": lambda _, text: f"{text}\r",
    "docker's json-file": _docker_json,
    "JSON, nested": _nested_json,
    "ansible stdout_lines": lambda _, text: f"        {json.dumps(text)},",
    "a cell of a table": lambda _, text: f"| {text} |",
    "cat -n": _numbered(6, "\t"),
    "nl, less -N": _numbered(7, " "),
}


def behind(form: str, lines: Iterable[str]) -> str:
    """Write lines as they are found in a log of a form."""
    write = FORMS[form]
    return "".join(f"{write(number, line)}\n" for number, line in enumerate(lines, start=1))
