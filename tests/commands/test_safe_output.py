"""Nothing that a log, a name or a host says is obeyed by a terminal, a browser or a spreadsheet."""

import csv
import html
import io
import itertools
import json
import logging
import re
import subprocess
import sys
import tarfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import Result
from markdown_it import MarkdownIt

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.cli import Commands, cli, live, terminal
from fabbench.execution.script.steps import quote
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
from tests.support.github_runner import workflow_commands
from tests.support.logs_by_hand import log
from tests.support.payloads import FIELDS, OBEYED, PAYLOADS, logs, planted
from tests.support.requests import request

ALL = "".join(PAYLOADS.values())
"""All of them at once: what one of them hides, another one must not let through."""
NAME = "x\nFORGED\n::add-mask::e"
"""The name of a file, a run or anything else: no line begins with a part of it."""
ONE_BY_ONE = [
    pytest.param(ALL, id="all"),
    *(pytest.param(text, id=name, marks=pytest.mark.slow) for name, text in PAYLOADS.items()),
]
RENDERED = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def run(*words: str | Path) -> Result:
    done = runner().invoke(cli, [*map(str, words)])
    assert done.exit_code != 70, done.stderr
    assert_safe(done.stdout)
    assert_safe(done.stderr)
    return done


def assert_safe(text: str) -> None:
    assert not OBEYED.findall(text), text


def assert_no_markup(text: str) -> None:
    """Fail where GitHub would make more of it than tables, titles and lists of text."""
    made = RENDERED.render(text)
    assert not {*re.findall(r"<(\w+)", made)} - {
        *("h3", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "p")
    }, made


def cells(text: str) -> Iterator[str]:
    for row in csv.reader(io.StringIO(text)):
        yield from row


def formulas(text: str) -> list[str]:
    return [cell for cell in cells(text) if re.match(r"[=+@\t]|-(?![\d.])", cell)]


@pytest.fixture
def store(tmp_path: Path) -> Callable[[str], Path]:
    """Return what makes a store with one run that has a payload wherever a run can have one."""

    def make(payload: str) -> Path:
        plain = payload.replace("\0", "")
        hosts = tuple(replace(host, name=f"h{payload}") for host in two_hosts().hosts)
        configurations = (Configuration(label=f"a{plain}", fabric=f"tcp{payload}"),)
        execution = Execution(
            id="000-a-r1",
            configuration=configurations[0],
            repeat=1,
            steps=(),
            proof=Proof(fabric="tcp", domain=payload),
            planned_sizes=(8,),
        )
        plan = Plan(benchmark="nccl", target=payload, configurations=configurations, executions=(execution,), hosts=2)
        run_request = request("nccl", PingpongWork(sizes=(64,)), store=tmp_path / "store")
        inventory = replace(two_hosts(), hosts=hosts, image=payload)
        writer = RunWriter(replace(run_request, env={"X": payload}), inventory, plan)
        with writer.execution(execution) as stored:
            for line in planted("failure", payload).splitlines():
                stored.write(line)
            stored.finish(Ending(status=0, timed_out=payload), ())
        edited = writer.path / "request.json"
        # What the program itself would not have stored so.
        edited.write_text(edited.read_text().replace('"000-a-r1"', json.dumps(f"000-a{plain}-r1")))
        return tmp_path / "store"

    return make


@pytest.mark.parametrize("payload", ONE_BY_ONE)
def test_what_a_log_says(tmp_path: Path, payload: str) -> None:
    files = []
    for name, text in logs(payload):
        files.append(tmp_path / f"{name}.txt")
        files[-1].write_text(text, "utf-8", errors="surrogateescape")
    for file in files:
        run("parse", file)
        run("explain", file)
        json.loads(run("parse", file, "--format", "json").stdout)
        assert_no_markup(run("parse", file, "--format", "markdown").stdout)
        assert not formulas(run("parse", file, "--format", "csv").stdout)
        compared = ("compare", file, files[0], "--allow", "redop", "--allow", "case", "--allow", "dtype")
        assert_no_markup(run(*compared).stdout)
        assert not formulas(run(*compared, "--format", "csv").stdout)
        for form in ("terminal", "json"):
            run(*compared, "--format", form)


def test_every_field_is_in_the_log() -> None:
    assert all("X-X" in planted(field, "X-X") for field in FIELDS)


@pytest.mark.parametrize("payload", ONE_BY_ONE)
def test_what_a_run_has_stored(store: Callable[[str], Path], payload: str) -> None:
    place = store(payload)
    for form in ("table", "json"):
        run("runs", "--store", place, "--format", form)
    for form in ("terminal", "json", "csv"):
        run("show", "last", "--store", place, "--format", form)
    run("show", payload.replace("\0", ""), "--store", place)
    run("compare", "last", "--store", place)


@pytest.mark.parametrize("payload", ONE_BY_ONE)
def test_what_arguments_and_fabbench_yaml_say(tmp_path: Path, payload: str) -> None:
    plain = payload.replace("\0", "")
    file = tmp_path / "fabbench.yaml"
    text = {"targets": {"t": {"launcher": "ssh", "hosts": [plain]}}, "defaults": {"fabrics": [plain]}}
    file.write_text(json.dumps({**text, "variants": {"v": {"env": {"X": plain}}}}))
    run("config", "--config", file)
    file.write_text(json.dumps({plain: plain, "default": plain}))
    run("config", "--config", file)
    for words in (
        ("parse", f"{tmp_path}/{plain.replace('/', '')}"),
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
        assert run(*words).exit_code in {2, 3, 4}


@pytest.mark.parametrize("payload", ONE_BY_ONE)
@pytest.mark.parametrize("form", ["script", "slurm", "skypilot", "modal", "mpijob"])
def test_a_rendered_document_means_what_it_says(form: str, payload: str) -> None:
    plain = payload.replace("\0", "")
    words = ("render", "nccl", "--as", form, "--fabric", "tcp", "--instance-type", "p5.48xlarge")
    done = run(*words, "--env", f"X={plain}")
    assert done.exit_code == 0
    assert plain.encode().hex() in done.stdout.encode("unicode_escape").hex() or "X=" in done.stdout


def test_a_shell_reads_what_a_script_does_not_print(tmp_path: Path) -> None:
    text = f"a'\\ {PAYLOADS['command']}{PAYLOADS['line']}"
    assert_safe(quote(text))
    done = subprocess.run(["bash", "-c", f"printf %s {quote(text)}"], capture_output=True, check=True)
    assert done.stdout.decode() == text


@pytest.mark.parametrize("form", ["tar", "file"])
def test_no_line_begins_with_a_part_of_a_name(tmp_path: Path, form: str) -> None:
    text = planted("library", "x")
    path = tmp_path / (f"{NAME}.log" if form == "file" else "logs.tar")
    if form == "file":
        path.write_text(text)
    else:
        with tarfile.open(path, "w") as archive:
            member = tarfile.TarInfo(f"{NAME}.log")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    outputs = [
        run(*words)
        for words in (
            ("explain", path),
            ("explain", path, tmp_path / NAME),
            ("parse", path, tmp_path / NAME),
            ("parse", path, "--format", "markdown"),
            ("compare", path, path, "--format", "comment"),
            ("compare", path, path, "--label", NAME, "--label", "b", "--format", "terminal"),
            ("compare", path, tmp_path / NAME),
            ("config", "--config", tmp_path / NAME),
            ("sweep", "--from", tmp_path / NAME),
        )
    ]
    shown = [done.stdout + done.stderr for done in outputs]
    assert all("FORGED" in each for each in shown[:4])
    assert [each for each in shown if re.search(r"(?m)^\s*FORGED", each)] == []
    assert r"\u000aFORGED" in shown[0]


def test_no_line_begins_with_a_part_of_what_is_stored(store: Callable[[str], Path]) -> None:
    place = store(NAME)
    for words in (("runs",), ("show", "last"), ("show", NAME), ("compare", "last"), ("history", "busbw")):
        done = run(*words, "--store", place)
        assert not re.search(r"(?m)^\s*FORGED", done.stdout + done.stderr), words


@pytest.mark.parametrize("text", ["a\n \t::add-mask::e", "x ##[stop-commands]q", "##vso[task.complete]", "\n::"])
def test_no_pieces_of_a_text_make_a_command(text: str) -> None:
    text = f"{text}\nend"
    cuts = itertools.combinations_with_replacement(range(len(text) + 1), 2)
    for first, second in cuts:
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
    stream = terminal.SafeStream(out)
    stream.writelines(iter(text.splitlines(keepends=True)))
    assert out.getvalue() == text


def test_the_only_commands_are_those_of_fabbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    payload = f"{PAYLOADS['command']}{PAYLOADS['line']}"
    files = [tmp_path / "new.log", tmp_path / "base.log"]
    for file in files:
        file.write_text(planted("failure", payload.replace("\n", " ")))
    words = ("compare", *files, "--label", payload, "--label", "b", "--junit", tmp_path / "junit.xml")
    done = runner().invoke(cli, [*map(str, words), "--format", "comment", "--gate", "busbw>=1GB/s"])
    assert workflow_commands(done.stderr) == ["error"] * done.stderr.count("::error title=")
    assert done.stderr.count("::error title=") > 0
    assert workflow_commands(done.stdout) == []
    written = [done.stdout, *((tmp_path / name).read_text() for name in ("summary", "junit.xml"))]
    assert all("PWNED" in each for each in written)
    for each in written:
        assert_safe(each)


def as_command(work: Callable[[], object]) -> Result:
    """Call something as a command."""

    class Group(Commands):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            del ctx
            return click.Command(cmd_name, callback=work)

    return runner().invoke(Group(name="fabbench"), ["do"])


def fail(payload: str) -> None:
    error = MachineError(payload, hint=payload)
    error.add_note(payload)
    raise error


@pytest.mark.parametrize("payload", [ALL])
@pytest.mark.parametrize(
    "work",
    [
        fail,
        click.echo,
        lambda payload: click.echo(payload, err=True),
        lambda payload: click.echo(payload.encode(errors="surrogatepass")),
        lambda payload: sys.stderr.buffer.write(payload.encode(errors="surrogatepass")),
        lambda payload: sys.stderr.writelines([payload]),
        print,
        terminal.notify,
        terminal.write_drawn,
        lambda payload: logging.getLogger("fabbench.launchers").info("%s", payload),
        lambda payload: warnings.warn(payload, PluginWarning, stacklevel=1),
        lambda payload: (_ for _ in ()).throw(KeyError(payload)),
        lambda payload: (_ for _ in ()).throw(OSError(5, payload, payload)),
        lambda payload: terminal.write_drawn(
            render_checks(
                [Check(host=payload, name=payload, status=Status.FAIL, seen=payload, advice=payload)], color=False
            )
        ),
    ],
)
def test_no_way_out_is_forgotten(work: Callable[[str], None], payload: str) -> None:
    done = as_command(lambda: work(payload))
    assert_safe(done.stdout)
    assert_safe(done.stderr)
    assert "PWNED" in done.stdout + done.stderr


def test_bytes_are_written_as_the_text_that_they_are() -> None:
    def work() -> None:
        sys.stdout.write("1 ")
        for byte in "µs\n\xff".encode() + b"\xff":
            sys.stdout.buffer.write(bytes([byte]))
        sys.stdout.write(" 2")

    assert as_command(work).stdout == "1 µs\nÿ\\xff 2"


@contextmanager
def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Let standard error be a terminal whose text can be looked at."""
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", screen)
    with terminal.safe_streams():
        yield screen


def test_the_live_view_draws_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = Configuration(label=f"a{ALL}", fabric="tcp")
    execution = Execution(
        id="000-a-r1", configuration=configuration, repeat=1, steps=(), proof=Proof(fabric="tcp"), planned_sizes=(8,)
    )
    plan = Plan(benchmark="nccl", target="t", configurations=(configuration,), executions=(execution,), hosts=2)
    failed = log([(8, 1e9)], outcome=Outcome.FAILED, reason=ALL)
    with a_terminal(monkeypatch) as screen:
        with live.watching(plan) as watcher:
            watcher.begin(execution, 1)
            watcher.point(execution, failed.points[0])
            watcher.end(execution, (failed,))
        with terminal.hosts_progress() as progress:
            progress(ALL, 1, 2)
    # What rich draws with: styles, and moves of the cursor.
    drawn = re.sub(r"\x1b\[(?:[\d;]*[mAHJK]|\?25[hl])|\r", "", screen.getvalue())
    assert "PWNED" in drawn
    assert_safe(drawn)
    assert "\x1b[2J\x1b[31m" not in screen.getvalue()


def test_the_short_lines_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = Execution(
        id="x",
        configuration=Configuration(label=ALL, fabric="tcp"),
        repeat=1,
        steps=(),
        proof=Proof(fabric="tcp"),
        planned_sizes=(8,),
    )
    plan = Plan(benchmark="nccl", target="t", configurations=(), executions=(execution,))
    done = as_command(lambda: live.Lines(plan).end(execution, (log([(8, 1e9)], outcome=Outcome.FAILED, reason=ALL),)))
    assert "PWNED" in done.stderr
    assert_safe(done.stderr)


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


def test_cells_are_numbers_texts_and_no_formulas(tmp_path: Path) -> None:
    file = tmp_path / "=cmd|' calc'!A0.txt"
    file.write_text(planted("library", "x"))
    relative = ("parse", file.name, "--format", "csv")
    with pytest.MonkeyPatch.context() as here:
        here.chdir(tmp_path)
        found = set(cells(run(*relative).stdout))
        assert {f"'{file.name}", "1e-05", "-1"} <= found
        raw = set(cells(run(*relative, "--raw-csv").stdout))
        assert {file.name, "1e-05", "-1"} <= raw
        refused = run("parse", file.name, "--raw-csv")
    assert (refused.exit_code, "has no effect without --format csv" in refused.stderr) == (2, True)


def test_markdown_is_shown_as_it_is_written() -> None:
    text = r"*a* _b_ `c` <b> &lt; [x](y) ~~z~~ 1. \| \\| # $x$ all_reduce ~/.ssh a*b"
    made = RENDERED.render(to_markdown(Table(title=text, header=(text,), rows=[(text,)], notes=(text, "- x"))))
    shown = [html.unescape(line) for line in re.findall(r">([^<>\n]+)<", made)]
    assert shown == [text, text, text, text, "- x"]


def test_a_thread_that_fails_is_no_success() -> None:
    def work() -> None:
        thread = threading.Thread(target=lambda: int("x"))
        thread.start()
        thread.join()

    done = as_command(work)
    assert done.exit_code == 70
    assert "Internal error: ValueError: invalid literal" in done.stderr
