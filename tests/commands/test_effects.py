"""Every option × launcher × format, from the declarations.

It has an effect, or is refused and says where.
"""

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.config.given import Given
from fabbench.config.requests import with_options
from fabbench.config.sections import options_of
from fabbench.launchers import options_of_formats, options_of_launchers
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target
from fabbench.model.options import RARE, Flag, LauncherOptions, Option
from tests.support.command_line import runner
from tests.support.paths import DATA, ROOT
from tests.support.syntax import text_of
from tests.support.tiers import sampled

LAUNCHERS, FORMATS = options_of_launchers(), options_of_formats()
VALUES = json.loads((DATA / "option-values.json").read_text("utf-8"))
"""An option → a value that is not its default; others are given a word."""
NEEDED: Mapping[str, tuple[str, ...]] = {
    "slurm mpirun": ("--mpi", "mpirun"),
    "container_mounts": ("--image", "registry.example/team/image:1"),
}
"""An option, or that of one format → those without which it has no meaning.

Both documents have them.
"""
P5 = ("--instance-type", "p5.48xlarge")


def every(places: Mapping[str, type[LauncherOptions]], verb: str) -> dict[str, Option]:
    """All options of places that a command line may have, by name."""
    found = {name: each for kind in places.values() for name, each in options_of(kind).items()}
    return {name: each for name, each in found.items() if each.flags and each.only in {"", verb}}


def words(option: Option) -> tuple[str, ...]:
    if isinstance(option.type, Flag):
        return (option.long, "true") if option.long.startswith(RARE) else (option.long,)
    return (option.long, VALUES.get(option.name, "word"))


def render(form: str, *more: str) -> Result:
    fixed = () if "--instance-type" in more else P5
    return runner().invoke(cli, ["render", "nccl", "--as", form, "--efa", *fixed, *more])


@pytest.mark.parametrize(
    "pair", sampled([(form, name) for form in FORMATS for name in options_of(FORMATS[form])], 9)
)
def test_an_option_changes_the_document(pair: tuple[str, str]) -> None:
    form, name = pair
    option = options_of(FORMATS[form])[name]
    if not option.flags or option.only not in {"", "render"}:
        return
    needed = NEEDED.get(f"{form} {name}", NEEDED.get(name, ()))
    done = render(form, *needed, *words(option))
    assert done.exit_code == 0, done.stderr
    assert done.stdout != render(form, *needed).stdout


@pytest.mark.parametrize(
    ("places", "verb", "by"), [(LAUNCHERS, "run", "--on"), (FORMATS, "render", "--as")]
)
def test_an_option_is_used_by_its_own_and_refused_by_others(
    places: Mapping[str, type[LauncherOptions]], verb: str, by: str
) -> None:
    for (place, kind), (name, option) in itertools.product(
        places.items(), every(places, verb).items()
    ):
        target = Target(name=place, launcher=place, options=kind())
        value = True if isinstance(option.type, Flag) else VALUES.get(name, "word")
        given = {name: Given((value,) if option.many else value)}
        if name in options_of(kind):
            assert with_options(target, given, places, by) != target
            continue
        with pytest.raises(RequestError, match=f"{option.long} .* {by} {place}") as raised:
            with_options(target, given, places, by)
        works = sorted(each for each, of in places.items() if name in options_of(of))
        assert f"{by} {', '.join(works)}." in (raised.value.hint or "")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_a_launcher_declares_is_read(launcher: str) -> None:
    """By its own package, or by what it shares with others."""
    (package,) = (ROOT / "src/fabbench/launchers").rglob(f"{launcher}/launcher.py")
    shared = [
        *(ROOT / "src/fabbench/remote").glob("*.py"),
        *(ROOT / "src/fabbench/launchers").glob("*.py"),
    ]
    files = [*package.parent.rglob("*.py"), *shared, *package.parent.parent.glob("*.py")]
    text = "".join(text_of(path) for path in files if path.name != "options.py")
    own = options_of(LAUNCHERS[launcher]).keys() - options_of(LauncherOptions).keys()
    assert {
        name for name in own if not re.search(rf"\.{name}\b", text) and f'"{name}"' not in text
    } == set()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("slurm", "--toleration", "a"), "kubernetes, mpijob"),
        *(
            (("skypilot", "--infra", "aws", option, f"{key}a=b"), option)
            for option, key in (("--pod-label", ""), ("--set", "annotations="))
        ),
        *(
            (("skypilot", "--infra", "slurm/x", option, f"{key}a"), option)
            for option, key in (("--toleration", ""), ("--set", "pull-secrets="))
        ),
        (("script", "--env", "NCCL_NET=Socket"), "NCCL_NET=AWS Libfabric"),
        (("script", "--env", "FI_PROVIDER=tcp"), "FI_PROVIDER=efa"),
        (("slurm", "--env", "NCCL_DEBUG=WARN"), "NCCL_DEBUG=INFO"),
        (("mpijob", "--env", "NCCL_NET=IB"), "NCCL_NET=AWS Libfabric"),
    ],
)
def test_what_would_have_no_effect_or_another_one_is_refused(
    words: tuple[str, ...], expected: str
) -> None:
    done = render(*words)
    assert (done.exit_code, done.stdout, expected in done.stderr) == (2, "", True), done.stderr
    if "--env" in words:
        assert render(words[0], "--env", expected).exit_code == 0


NASTY = (
    "a b",
    "a;b",
    "a$(b)",
    "a`b`",
    "a'b",
    'a"b',
    "a\nb",
    "a\x1b[1m",
    "a|b",
    "a\\b",
    "-b",
    "",
    "a\u2028b",
)


@pytest.mark.parametrize("word", sampled(NASTY, every=4))
def test_what_a_shell_could_misread_is_no_name(word: str, tmp_path: Path) -> None:
    for option in ("interface", "host", "partition", "account", "image", "instance-type", "mpirun"):
        form = "script" if option in {"interface", "instance-type", "mpirun"} else "slurm"
        done = render(form, f"--{option}={word}")
        assert (done.exit_code, done.stdout) == (2, ""), option
    for key in ("interface", "image", "mpirun") if word else ():
        assert render("slurm", "--variant", f"v={key}={word}", "--variant", "w=").exit_code == 2
        file = tmp_path / "fabbench.yaml"
        file.write_text(f"targets: {{t: {{launcher: slurm, {key}: {json.dumps(word)}}}}}\n")
        done = runner().invoke(cli, ["config", "--config", str(file)])
        assert (done.exit_code, f"{file}: targets.t.{key} " in done.stderr) == (2, True)
