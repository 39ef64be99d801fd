"""Help in sections, suggestions for what is nearly right, completion."""

from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete

from fabbench.cli import COMMANDS, cli
from tests.support.command_line import runner


def fabbench(*words: str) -> str:
    done = runner().invoke(cli, words)
    return done.stdout + done.stderr


def sections(text: str) -> list[str]:
    return [
        line.rstrip(":") for line in text.splitlines() if line[:1].isalpha() and line.endswith(":")
    ]


def test_help_has_sections() -> None:
    found = sections(fabbench("run", "nccl", "--help"))
    assert found[:3] == ["Benchmark", "Options", "Where"]
    assert {"With kubernetes, mpijob", "With slurm", "With skypilot"} < set(found)
    assert found[-1] == "Set with --set KEY=VALUE"


def commands(
    words: tuple[str, ...] = (), command: click.Command = cli
) -> Iterator[tuple[str, ...]]:
    """Every command, with those below it."""
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands((*words, name), below)


@pytest.mark.parametrize("words", [*commands()], ids=" ".join)
def test_short_help_is_short_and_names_the_whole(words: tuple[str, ...]) -> None:
    lines = runner({"COLUMNS": "80"}).invoke(cli, [*words, "-h"]).stdout.splitlines()
    assert (len(lines) <= 40, max(map(len, lines)) <= 80) == (True, True), "\n".join(lines)
    assert lines[-1] == f"{' '.join(('cli', *words))} --help shows all options."


def test_the_program_alone_prints_its_commands_and_some_to_try() -> None:
    done = runner().invoke(cli, [])
    assert (done.exit_code, sections(done.stdout)) == (
        0,
        ["Measure", "Read results", "Past runs", "Cluster and setup", "Try"],
    )
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_words_of_other_tools_are_understood() -> None:
    for words, meant in {
        "rm --help": "runs rm",
        "help run nccl": "run nccl",
        "run alltoall -h": "run nccl",
    }.items():
        assert fabbench(*words.split()).startswith(f"Usage: cli {meant} ")
    assert "#SBATCH" in fabbench(
        "render", "nccl", "--as", "sbatch", "--gpus", "8", "--nccl-tests", "/x", "--no-efa"
    )


def test_former_names_are_taken_and_name_their_successors() -> None:
    script = ("render", "osu", "--as", "script", "--no-efa")
    done = [runner().invoke(cli, (*script, each, "osu_bw")) for each in ("--test", "--program")]
    former, now = done
    assert (former.exit_code, "osu_bw" in now.stdout) == (0, True)
    assert former.stderr == f"--test is now --program.\n{now.stderr}"
    logs = ("parse", "examples/logs/allreduce-2node-socket.txt", "--format")
    assert len({fabbench(*logs, each) for each in ("text", "table", "terminal")}) == 1


def test_the_closest_option_is_suggested() -> None:
    assert "Did you mean '--efa'?" in fabbench("run", "nccl", "--eaf")
    assert "Did you mean --version?" in fabbench("version")


def completed(*words: str) -> list[str]:
    *before, last = words
    made = ShellComplete(cli, {}, "fabbench", "_FABBENCH_COMPLETE")
    return [item.value for item in made.get_completions(before, last)]


def test_values_are_completed() -> None:
    assert completed("render", "nccl", "--fabric", "ef") == ["efa"]
    assert completed("render", "nccl", "--as", "ku") == ["kubernetes"]
    assert completed("run", "ncc") == ["nccl"]
    assert completed("run", "nccl", "--dtype", "bf") == ["bfloat16"]
    (files,) = ShellComplete(cli, {}, "fabbench", "_FABBENCH_COMPLETE").get_completions(
        ["compare"], "a"
    )
    assert files.type == "file"
