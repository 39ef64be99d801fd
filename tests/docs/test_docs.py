"""The documentation fits the program.

Examples run, the reference is current, links lead somewhere.
"""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from fabbench import __version__
from fabbench.benchmarks import benchmarks
from fabbench.cli import COMMANDS, cli
from fabbench.model.errors import Exit
from fabbench.model.log import METRICS, Outcome
from tests.support.command_line import commands, runner
from tests.support.corpus import recorded
from tests.support.markdown import blocks
from tests.support.needed import need
from tests.support.paths import ROOT

DOCS = sorted((ROOT / "docs").glob("*.md"))
SKILLS = sorted((ROOT / "skills").glob("*/SKILL.md"))
PAGES = [ROOT / "README.md", *DOCS, *sorted((ROOT / "examples").rglob("*.md")), *SKILLS]
PROJECT = [ROOT / each for each in ("CHANGELOG.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


# ---------------------------------------------------------------- examples


class Example(NamedTuple):
    """A command in a ```console block, and the output shown below it."""

    line: int
    command: str
    expected: str


def examples(path: Path) -> list[Example]:
    found: list[Example] = []
    for start, info, lines in blocks(path.read_text("utf-8")):
        if info != "console":
            continue
        assert lines[0].startswith("$ "), (
            f"{name(path)}:{start}: a console block starts with a command"
        )
        for number, line in enumerate(lines, start + 1):
            if line.startswith("$ "):
                found.append(Example(number, line[2:], ""))
            elif found[-1].command.endswith("\\"):
                found[-1] = found[-1]._replace(command=f"{found[-1].command}\n{line}")
            else:
                found[-1] = found[-1]._replace(expected=f"{found[-1].expected}{line}\n")
    return found


def pattern(expected: str) -> re.Pattern[str]:
    """Match what is shown.

    `...` stands for anything in a line, alone in a line for any number of lines.
    """
    lines = [line.rstrip() for line in expected.splitlines()]
    parts = [
        r"(?:[^\n]*\n)*?"
        if line == "..."
        else re.escape(line).replace(r"\.\.\.", r"[^\n]*?") + r"\s*?\n"
        for line in lines
    ]
    return re.compile("".join(parts))


def measures(example: Example) -> bool:
    return example.command.startswith("fabbench run ")


@pytest.mark.local
@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=name)
def test_examples_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    """Up to the first that measures."""
    run(page, [*takewhile(lambda example: not measures(example), examples(page))], tmp_path)


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(map(measures, examples(page)))], ids=name
)
def test_examples_that_measure_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    need("fi_pingpong")
    run(page, examples(page), tmp_path)


def run(page: Path, chosen: list[Example], tmp_path: Path) -> None:
    """Run a page's examples one after the other in a copy of `examples/`."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("FABBENCH_")
    }
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "COLUMNS": "110",
        "NO_COLOR": "1",
    }
    status = 0
    for example in chosen:
        shown = f"{name(page)}:{example.line}: {example.command}"
        if status != 0:
            assert example.command == "echo $?", (
                f"{shown} follows a status of {status} that is not shown"
            )
        with chdir(tmp_path):
            status, output = carried_out(example.command, environment, before=status)
        assert pattern(example.expected).fullmatch(output), f"{shown}\n{output}"
    assert status == 0, "the last command's status is not shown"


PLAIN = re.compile(r"fabbench (?P<words>[^|<>;&*$]*?)(?: > ?(?P<file>[\w.]+))?")
"""A command of fabbench alone, its output perhaps into a file."""


def carried_out(command: str, environment: dict[str, str], *, before: int) -> tuple[int, str]:
    """Return a command's status and output.

    Plain ones are carried out in this process, others by bash.
    """
    if plain := PLAIN.fullmatch(command):
        others = dict.fromkeys(name for name in os.environ if name.startswith("FABBENCH_"))
        words = shlex.split(plain["words"].replace("\\\n", ""))
        done = runner({**others, **environment}).invoke(cli, words, prog_name="fabbench")
        if not plain["file"]:
            return done.exit_code, done.output
        Path(plain["file"]).write_bytes(done.stdout_bytes)
        return done.exit_code, done.stderr
    ended = subprocess.run(
        ["bash", "-c", f"(exit {before})\n{command}"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_only_blocks_with_a_reason_are_not_run() -> None:
    for page in PAGES:
        for start, info, _ in blocks(page.read_text("utf-8")):
            where = f"{name(page)}:{start}"
            plain = r"text|json|yaml|sh|python( \w+\.py)?|toml \w+\.toml"
            assert re.fullmatch(rf"console(?: no-run: .{{10,}})?|{plain}", info), where


@pytest.mark.parametrize("page", SKILLS, ids=name)
def test_a_skill_says_when_to_use_it(page: Path) -> None:
    """As agentskills.io describes it."""
    _, head, body = page.read_text("utf-8").split("---\n", 2)
    about = yaml.safe_load(head)
    assert about["name"] == page.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", about["name"])
    assert 100 < len(about["description"]) <= 1024
    assert len(about["compatibility"]) <= 500
    assert len(body.splitlines()) < 500


# ---------------------------------------------------------------- reference


def test_the_figure_shows_the_numbers_as_they_are_read() -> None:
    written = runpy.run_path(str(ROOT / "docs/figure.py"))["figure"]()
    assert text_of("docs/efa-against-tcp.svg") == written, "run `make reference`"


@pytest.mark.parametrize("page", ["cli", "configuration", "troubleshooting", "normal-busbw"])
def test_generated_pages_are_current(page: str) -> None:
    text = text_of(f"docs/{page}.md")
    assert text == runpy.run_path(str(ROOT / "docs/generate.py"))["PAGES"][page](text), (
        "run `make reference`"
    )


def test_every_command_and_option_is_documented() -> None:
    """Shared options once, others where their command is."""
    reference = text_of("docs/cli.md")
    shared = set(
        re.findall(
            r"^\* `.*?(--(?:set [a-z])?[\w-]+)",
            section_of(reference, "Shared options"),
            re.MULTILINE,
        )
    )
    assert {"--on", "--fabric", "--partition"} <= shared
    found = dict(commands())
    assert {f"fabbench {each}" for each in COMMANDS} <= set(found)
    for path, command in found.items():
        assert command.help, path
        group, _, below = path.removeprefix("fabbench ").partition(" ")
        section = section_of(reference, f"fabbench {group}").partition("\n### ")[0]
        if group in {"run", "render", "sweep", "tune"}:
            section += section_of(reference, "fabbench run").partition("\n### ")[0]
        if below:
            section += section_of(
                reference,
                path if group not in {"render", "sweep", "tune"} else f"fabbench run {below}",
            )
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, f"{path} {option.opts[0]} has no help"
                flag = re.escape(max(option.opts, key=len)).replace(r"\ ", r"\s+")
                named = re.search(rf"`[^`]*{flag}[\s,`=]", section)
                assert named or {*option.opts} & shared, f"{path} {option.opts[0]}"


def section_of(text: str, title: str) -> str:
    """The text below a heading, with what is below it."""
    (found,) = re.findall(
        rf"^(##+) {re.escape(title)}\n(.*?)(?=^\1 |^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    return str(found[1])


def test_the_contract_names_every_metric_outcome_and_status() -> None:
    page = text_of("docs/formats.md")
    for metric in METRICS.values():
        better = "lower" if metric.lower_is_better else "higher"
        assert re.search(rf"\| `{metric.name}` \| {re.escape(metric.unit)} \| {better} \|", page), (
            metric
        )
    for outcome in Outcome:
        assert f"| `{outcome}` |" in page, outcome
    statuses = text_of("docs/exit-statuses.md")
    for status in Exit:
        assert f"| {int(status)} |" in statuses, status


def test_the_contract_names_everything_that_is_printed() -> None:
    text = text_of("docs/formats.md").partition("## What is read")[0] + text_of(
        "docs/troubleshooting.md"
    )
    page = {*re.findall(r"`([^`\n]+)`", text)}
    done = runner().invoke(
        cli, ["parse", "--exit-zero", "--format", "json", str(ROOT / "examples/logs")]
    )
    document = json.loads(done.stdout)
    printed = {*document}
    for log in document["logs"]:
        for each in (log, *log["samples"], *log["findings"], *log["damaged"]):
            printed |= {*each}
    logs = [
        log
        for name, logs in recorded().items()
        if name.startswith("tests/data/logs/")
        for log in logs
    ]
    assert len(logs) > 50
    for log in logs:
        printed |= {
            *log.get("facts", ()),
            *(finding.split()[0] for finding in log.get("findings", ())),
        }
        printed |= {
            word.partition("=")[0]
            for value in log.get("values", ())
            for word in value.split()
            if "=" in word
        }
    assert printed - page == set()


def test_the_columns_of_a_comparison_are_documented() -> None:
    page = text_of("docs/compare.md").partition("## CSV and JSON")[2]
    table, document = (
        runner().invoke(
            cli,
            [
                "compare",
                *sorted(map(str, (ROOT / "examples/logs").glob("x-*.txt")))[::2],
                "--format",
                each,
            ],
        )
        for each in ("csv", "json")
    )
    shown = page.partition("`--format json`")[0]
    assert table.stdout.splitlines()[0].split(",") == [
        each for each in re.findall(r"`([a-z_]+)`", shown) if each != "format"
    ]
    assert {*json.loads(document.stdout)} <= set(re.findall(r"`([a-z_]+)`", page))


def test_every_benchmark_is_documented() -> None:
    row = text_of("docs/formats.md").partition("| `benchmark` |")[2].partition("| `case` |")[0]
    assert set(re.findall(r"`([a-z_]+)`", row)) == set(benchmarks())


def test_every_finding_is_documented() -> None:
    # What explains a pod or a job has codes too, and is no finding of a log.
    package = ROOT / "src/fabbench"
    paths = [
        path for path in package.rglob("*.py") if path.relative_to(package).parts[0] != "launchers"
    ]
    sources = "".join(path.read_text("utf-8") for path in paths)
    codes = re.findall(r"""(?:code=|\b(?:finding|note|warning)\(\s*)"([a-z-]+)\"""", sources)
    codes += re.findall(r"(?m)^([a-z]+(?:-[a-z]+)+)(?:, (?:error|note))?:", sources)
    assert len(codes) > 20
    section = text_of("docs/formats.md").partition("### Findings")[2].partition("\n## ")[0]
    assert {code for code in codes if f"`{code}`" not in section} == set()


# ---------------------------------------------------------------- links, changelog


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, *PROJECT], ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{name(page)} → {target}"
        if anchor:
            assert anchor in anchors(linked.read_text("utf-8")), f"{name(page)} → {target}"


@pytest.mark.parametrize("page", [page for page in DOCS if page.name != "index.md"], ids=name)
def test_every_page_is_in_the_index(page: Path) -> None:
    assert f"]({page.name})" in text_of("docs/index.md")


def test_no_line_is_too_long_to_review() -> None:
    """But headings, which cannot be wrapped."""
    pages = [*DOCS, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    lines = [(name(page), line) for page in pages for line in page.read_text("utf-8").splitlines()]
    prose = [(page, line) for page, line in lines if not line.startswith("#")]
    assert [(page, line) for page, line in prose if len(line) > 120] == []


def test_the_pages_are_read_in_two_hours() -> None:
    """What is written by hand, without examples."""
    written = [ROOT / "README.md", *(page for page in DOCS if page.name != "cli.md")]
    others = r"(?ms)^```.*?^```|<!-- generated: .*?<!-- end -->"
    words = [re.sub(others, "", page.read_text("utf-8")).split() for page in written]
    assert sum(map(len, words)) <= 32_000


PRIVATE = (
    r"if not given|makes no sense|is seen to be|for each rank|of Slurm.s|all the "
    r"same|\barms?\b|\bfolders?\b"
)


def test_pages_use_the_words_of_the_field() -> None:
    """Those written from the program have its words."""
    generated = ("cli.md", "configuration.md", "troubleshooting.md")
    pages = [*(page for page in DOCS if page.name not in generated), *PROJECT[1:]]
    for page in pages:
        prose = re.sub(r"(?ms)^```.*?^```|`[^`]*`", "", page.read_text("utf-8"))
        assert re.findall(PRIVATE, prose) == [], name(page)


def test_the_map_of_the_code_is_complete() -> None:
    package = ROOT / "src/fabbench"
    entries = {
        path.name + "/" * path.is_dir()
        for path in package.iterdir()
        if not path.name.startswith(("_", "py."))
    }
    page = text_of("docs/developing.md").partition("## Where things are")[2].partition("\n## ")[0]
    named = set(re.findall(r"(?<![\w/])[a-z]+(?:\.py|/(?=\s))", page.partition("\ntests/\n")[0]))
    assert named == entries


@pytest.mark.local
@pytest.mark.slow
def test_make_demo_shows_what_is_unique() -> None:
    words = ["make", "demo", "PREPARE=:", f"FABBENCH={sys.executable} -m fabbench"]
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("FABBENCH_", "MAKE"))
    }
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    compared, explained, swept, following = done.stdout.split("\n--- ")
    assert "18.7 x" in compared
    assert ": off-fabric\n" in explained
    assert re.search(r"^\| bad +\| node \| node5 ", swept, flags=re.MULTILINE)
    assert "explain YOUR.log" in following


def test_the_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), flags=re.MULTILINE))
    named = {
        found for page in PAGES for found in re.findall(r"`make ([a-z-]+)", page.read_text("utf-8"))
    }
    assert named >= {"demo", "test"}
    assert named <= targets


def test_the_changelog_has_a_section_with_content() -> None:
    sections = re.split(r"^## ", text_of("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    assert sections[0].startswith(("Unreleased\n", __version__))
    assert re.search(r"^- \S", sections[0], flags=re.MULTILINE)
