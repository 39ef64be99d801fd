"""Nothing that a log, a name or a host says is obeyed by a terminal, a browser or a spreadsheet."""

import csv
import html
import io
import itertools
import json
import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import Result
from markdown_it import MarkdownIt

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.cli import Commands, cli, live, terminal
from fabbench.execution.script.words import quote
from fabbench.hosts.check import Check, Status
from fabbench.model.errors import MachineError
from fabbench.model.log import Ending, Outcome
from fabbench.model.messages import printable
from fabbench.model.plan import Configuration, Execution, Plan, Proof
from fabbench.model.plugins import PluginWarning
from fabbench.report.check_report import render_checks
from fabbench.report.table import Table, to_markdown
from fabbench.runs.store import RunWriter
from fabbench.testing import two_hosts
from tests.support.command_line import runner
from tests.support.logs_by_hand import log
from tests.support.payloads import FIELDS, OBEYED, PAYLOADS, logs, planted
from tests.support.requests import request

ALL = "".join(PAYLOADS.values())
"""All of them at once: what one of them hides, another one must not let through."""
NAME = "x\nFORGED\n::add-mask::e"
"""The name of a file, a run or anything else: no line begins with a part of it."""
EACH = [pytest.param(text, id=name, marks=pytest.mark.slow) for name, text in PAYLOADS.items()]
HOSTILE = pytest.mark.parametrize(
    "payload", [pytest.param(ALL, id="all"), pytest.param(NAME, id="name"), *EACH]
)
PLANTED = pytest.mark.parametrize("payload", [pytest.param(ALL, id="all"), *EACH])
"""In a log, a name of several lines is but a line that forges one, as one of the payloads is."""
RENDERED = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
TAGS = {"h3", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "p"}


def assert_safe(*texts: str) -> None:
    for text in texts:
        assert not OBEYED.findall(text), text
        assert not re.search(r"(?m)^\s*FORGED", text), text


def run(*words: str | Path) -> str:
    """Run a command, and return what it prints: safe for terminals, GitHub and spreadsheets."""
    done = runner().invoke(cli, [*map(str, words)])
    assert done.exit_code in {0, 1, 2, 3, 4}, done.stderr
    assert_safe(done.stdout, done.stderr)
    if "markdown" in words:
        assert {*re.findall(r"<(\w+)", RENDERED.render(done.stdout))} <= TAGS
    if "csv" in words:
        cells = itertools.chain.from_iterable(csv.reader(io.StringIO(done.stdout)))
        assert not [cell for cell in cells if re.match(r"[=+@\t]|-(?![\d.])", cell)]
    if "json" in words and done.stdout:
        json.loads(done.stdout)
    return done.stdout + done.stderr


@PLANTED
def test_what_a_log_says(tmp_path: Path, payload: str) -> None:
    files = []
    for name, text in logs(payload):
        files.append(tmp_path / f"{name}.txt")
        files[-1].write_text(text, "utf-8", errors="surrogateescape")
    for file in files:
        run("explain", file)
        for form in ("text", "json", "markdown", "csv"):
            run("parse", file, "--format", form)
        compared = (
            "compare",
            file,
            files[0],
            "--allow",
            "redop",
            "--allow",
            "case",
            "--allow",
            "dtype",
        )
        for form in ("markdown", "csv", "text", "json"):
            run(*compared, "--format", form)


def test_every_field_is_in_the_log() -> None:
    assert all("X-X" in planted(field, "X-X") for field in FIELDS)


@HOSTILE
def test_what_a_run_has_stored(tmp_path: Path, payload: str) -> None:
    """A payload is wherever a run can have one."""
    plain = payload.replace("\0", "")
    hosts = tuple(replace(host, name=f"h{payload}") for host in two_hosts().hosts)
    configuration, proof = (
        Configuration(label=f"a{plain}", fabric=f"tcp{payload}"),
        Proof(fabric="tcp", domain=payload),
    )
    execution = Execution(
        id="000-a-r1",
        configuration=configuration,
        repeat=1,
        steps=(),
        proof=proof,
        planned_sizes=(8,),
    )
    plan = Plan(
        benchmark="nccl",
        target=payload,
        configurations=(configuration,),
        executions=(execution,),
        hosts=2,
    )
    run_request = request("nccl", PingpongWork(sizes=(64,)), store=tmp_path / "store")
    writer = RunWriter(
        replace(run_request, env={"X": payload}),
        replace(two_hosts(), hosts=hosts, image=payload),
        plan,
    )
    with writer.execution(execution) as stored:
        for line in planted("failure", payload).splitlines():
            stored.write(line)
        stored.finish(Ending(status=0, timed_out=payload))
    edited = writer.path / "request.json"
    # What the program itself would not have stored so.
    edited.write_text(edited.read_text().replace('"000-a-r1"', json.dumps(f"000-a{plain}-r1")))
    for words in (
        *(("runs", "--format", form) for form in ("text", "json")),
        *(("show", "last", "--format", form) for form in ("text", "json", "csv")),
        ("show", plain),
        ("compare", "last"),
        ("history", "busbw"),
    ):
        run(*words, "--store", tmp_path / "store")


@HOSTILE
def test_what_names_arguments_and_fabbench_yaml_say(tmp_path: Path, payload: str) -> None:
    plain = payload.replace("\0", "")
    name = f"{plain.replace('/', '').encode()[-200:].decode(errors='ignore')}.log"
    path = tmp_path / name
    path.write_text(planted("library", "x"))
    file = tmp_path / "fabbench.yaml"
    text = {
        "targets": {"t": {"launcher": "ssh", "hosts": [plain]}},
        "defaults": {"fabrics": [plain]},
    }
    for document in (
        {**text, "variants": {"v": {"env": {"X": plain}}}},
        {plain: plain, "default": plain},
    ):
        file.write_text(json.dumps(document))
        run("config", "--config", file)
    shown = run("explain", path)
    assert payload != NAME or r"\u000aFORGED" in shown
    run("parse", path, f"{path}.gone")
    run("parse", path, "--format", "markdown")
    run("compare", path, path, "--format", "comment")
    run("compare", path, path, "--label", plain, "--label", "b", "--format", "text")
    for words in (
        ("compare", path, f"{path}.gone"),
        ("config", "--config", f"{path}.gone"),
        ("sweep", "--from", f"{path}.gone"),
        ("run", "nccl", "--on", plain),
        ("run", "nccl", f"--{plain}"),
        ("run", "pingpong", "--on", "local", "--fabric", plain),
        ("compare", plain, plain, "--label", plain),
        ("compare", __file__, __file__, "--metric", plain, "--gate", plain),
        ("check", "--on", "ssh", "--host", plain.replace(",", ""), "--ssh-config", plain),
        ("check", "--on", plain),
        ("clean", "--on", plain),
        (plain,),
    ):
        assert "Error: " in run(*words)
    for form in ("script", "slurm", "skypilot", "modal", "mpijob", "trainjob"):
        render = (
            "render",
            "nccl",
            "--as",
            form,
            "--fabric",
            "tcp",
            "--instance-type",
            "p5.48xlarge",
        )
        assert "X=" in run(*render, "--env", f"X={plain}")


def test_a_shell_reads_what_a_script_does_not_print() -> None:
    text = f"a'\\ {PAYLOADS['command']}{PAYLOADS['line']}"
    assert_safe(quote(text))
    done = subprocess.run(
        ["bash", "-c", f"printf %s {quote(text)}"], capture_output=True, check=True
    )
    assert done.stdout.decode() == text


@pytest.mark.parametrize(
    "text", ["a\n \t::add-mask::e", "x ##[stop-commands]q", "##vso[task.complete]", "\n::"]
)
def test_no_pieces_of_a_text_make_a_command(text: str) -> None:
    text = f"{text}\nend"
    for first, second in itertools.combinations_with_replacement(range(len(text) + 1), 2):
        out = io.StringIO()
        stream = terminal.SafeStream(out)
        for piece in (text[:first], text[first:second], text[second:]):
            stream.write(piece)
        assert_safe(out.getvalue())
        assert out.getvalue().encode().decode("unicode_escape") == text


def test_text_that_is_no_command_stays() -> None:
    text = "::1 fe80::1 std::vector\n::1\n# [x] #[x] ### [x](y) ## a[0]\n a::b::c\nx ::error::y\n"
    assert printable(text) == text
    out = io.StringIO()
    terminal.SafeStream(out).writelines(iter(text.splitlines(keepends=True)))
    assert out.getvalue() == text


def test_a_label_is_no_command(tmp_path: Path) -> None:
    payload = f"{PAYLOADS['command']}{PAYLOADS['line']}"
    file = tmp_path / "new.log"
    file.write_text(planted("failure", payload.replace("\n", " ")))
    words = (
        "compare",
        file,
        file,
        "--label",
        payload,
        "--label",
        "b",
        "--junit",
        tmp_path / "junit.xml",
    )
    done = runner().invoke(cli, [*map(str, words), "--format", "comment", "--gate", "busbw>=1GB/s"])
    written = [done.stdout, done.stderr, (tmp_path / "junit.xml").read_text()]
    assert all("PWNED" in each for each in written)
    assert_safe(*written)


def as_command(work: Callable[[], object]) -> Result:
    """Call something as a command."""

    class Group(Commands):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            del ctx
            return click.Command(cmd_name, callback=work)

    return runner().invoke(Group(name="fabbench", callback=cli.callback), ["do"])


def fail(error: BaseException) -> None:
    error.add_note(ALL)
    raise error


FAILED = log([(8, 1e9)], outcome=Outcome.FAILED, reason=ALL)
TCP = Configuration(label=f"a{ALL}", fabric="tcp")
EXECUTION = Execution(
    id="x", configuration=TCP, repeat=1, steps=(), proof=Proof(fabric="tcp"), planned_sizes=(8,)
)
PLAN = Plan(benchmark="nccl", target="t", configurations=(TCP,), executions=(EXECUTION,), hosts=2)
CHECK = Check(host=ALL, name=ALL, status=Status.FAIL, seen=ALL, advice=ALL)
SINKS: tuple[Callable[[], object], ...] = (
    lambda: fail(MachineError(ALL, hint=ALL)),
    lambda: fail(KeyError(ALL)),
    lambda: fail(OSError(5, ALL, ALL)),
    lambda: click.echo(ALL, err=True),
    lambda: sys.stderr.writelines([ALL]),
    lambda: print(ALL),
    lambda: terminal.notify(ALL),
    lambda: terminal.write_drawn(ALL),
    lambda: logging.getLogger("fabbench.launchers").info("%s", ALL),
    lambda: warnings.warn(ALL, PluginWarning, stacklevel=1),
    lambda: terminal.write_drawn(render_checks([CHECK], color=False)),
    lambda: live.RunScreen(PLAN).end(EXECUTION, (FAILED,)),
)


@pytest.mark.parametrize("work", SINKS)
def test_no_way_out_is_forgotten(work: Callable[[], object]) -> None:
    done = as_command(work)
    assert_safe(done.stdout, done.stderr)
    assert "PWNED" in done.stdout + done.stderr


def test_the_live_view_draws_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", screen)
    with terminal.safe_streams():
        with live.watching(PLAN) as watcher:
            watcher.begin(EXECUTION, 1)
            watcher.point(EXECUTION, FAILED.points[0])
            os.kill(os.getpid(), signal.SIGALRM)  # as the clock does
            watcher.end(EXECUTION, (FAILED,))
        with terminal.changing() as progress:
            progress(ALL, 1, 2)
    # What rich draws with: styles, and moves of the cursor.
    drawn = re.sub(r"\x1b\[(?:[\d;]*[mAHJK]|\?25[hl])|\r", "", screen.getvalue())
    assert "PWNED" in drawn
    assert_safe(drawn)
    assert "\x1b[2J\x1b[31m" not in screen.getvalue()


def test_colours_of_tables_reach_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with terminal.safe_streams():
        terminal.write_drawn(f"\x1b[1mbold\x1b[0m {ALL}")
        click.echo("\x1b[1mplain\x1b[0m")
    out = capsys.readouterr().out
    assert out.startswith("\x1b[1mbold\x1b[0m ")
    assert out.endswith("plain\n")
    assert_safe(re.sub(r"\x1b\[[\d;]*m", "", out))


def test_cells_are_numbers_texts_and_no_formulas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "=cmd|' calc'!A0.txt"
    Path(name).write_text(planted("library", "x"))
    done = runner().invoke(cli, ["parse", name, "--format", "csv"])
    assert {f"'{name}", "1e-05", "-1"} <= {
        *itertools.chain.from_iterable(csv.reader(io.StringIO(done.stdout)))
    }


def test_markdown_is_shown_as_it_is_written() -> None:
    text = r"*a* _b_ `c` <b> &lt; [x](y) ~~z~~ 1. \| \\| # $x$ all_reduce ~/.ssh a*b"
    made = RENDERED.render(
        to_markdown(Table(title=text, header=(text,), rows=[(text,)], notes=(text, "- x")))
    )
    shown = [html.unescape(line) for line in re.findall(r">([^<>\n]+)<", made)]
    assert shown == [text, text, text, text, "- x"]
