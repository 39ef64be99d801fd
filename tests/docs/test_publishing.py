"""What publishes fabbench: workflows, forms, and the scripts that they call."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabbench import __version__
from fabbench.cli.mcp_command import mcp_
from tests.support.github_runner import Job
from tests.support.paths import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = {path.stem: path for path in sorted((GITHUB / "workflows").glob("*.yml"))}
PLACEHOLDER = "OWNER/fab" + "bench"


def loaded(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def steps(workflow: str) -> list[dict[str, Any]]:
    jobs = loaded(WORKFLOWS[workflow])["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_every_action_is_named_by_commit_and_says_its_version(workflow: str) -> None:
    lines = re.findall(r"uses: (.*)", WORKFLOWS[workflow].read_text("utf-8"))
    assert lines
    pinned = r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert [line for line in lines if not re.fullmatch(pinned, line)] == []


def test_an_action_has_one_version() -> None:
    texts = [path.read_text("utf-8") for path in WORKFLOWS.values()]
    named = {line for text in texts for line in re.findall(r"uses: (.*)", text)}
    actions = [line.partition("@")[0] for line in named]
    assert sorted(actions) == sorted(set(actions))


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_workflow_may_read_and_each_job_says_what_else(workflow: str) -> None:
    found = loaded(WORKFLOWS[workflow])
    assert found["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in found["jobs"].values())
    assert "secrets." not in WORKFLOWS[workflow].read_text("utf-8")
    checkouts = [step for step in steps(workflow) if "actions/checkout" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.local
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_steps_are_scripts_without_text_from_outside(workflow: str, tmp_path: Path) -> None:
    scripts = [step["run"] for step in steps(workflow) if "run" in step]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []
    for number, script in enumerate(scripts):
        (tmp_path / str(number)).write_text(script)
        done = subprocess.run(["bash", "-n", str(tmp_path / str(number))], check=False)
        assert done.returncode == 0, script


def test_pypi_comes_after_testpypi_and_after_somebody_agreed() -> None:
    jobs = loaded(WORKFLOWS["release"])["jobs"]
    order = ["build", "testpypi", "install", "publish"]
    assert [jobs[name]["needs"] for name in order[1:]] == order[:-1]
    assert jobs["testpypi"]["if"] == "github.event_name == 'push'"
    assert jobs["publish"]["environment"]["name"] == "release"
    uploads = [
        (name, step.get("with", {}).get("repository-url"))
        for name, job in jobs.items()
        for step in job["steps"]
        if "gh-action-pypi-publish" in step.get("uses", "")
    ]
    assert uploads == [("testpypi", "https://test.pypi.org/legacy/"), ("publish", None)]
    assert all(jobs[name]["permissions"]["id-token"] == "write" for name, _ in uploads)


def test_pull_requests_have_the_gate_but_for_what_needs_root() -> None:
    gate = (ROOT / ".ci/run").read_text("utf-8")
    (job,) = loaded(WORKFLOWS["ci"])["jobs"].values()
    targets = job["strategy"]["matrix"]["targets"]
    assert targets == ["lint site", "test", "test-local", "test-lowest", "test-wheel"]
    assert [each for each in targets if not re.search(rf"make {each}$", gate, re.MULTILINE)] == []


def test_forms_ask_for_what_contributing_asks_for() -> None:
    forms = [loaded(path) for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml")]
    bodies = [form["body"] for form in forms if "body" in form]
    assert len(bodies) == 2
    for body in bodies:
        names = [field["id"] for field in body]
        assert "version" in names
        assert len(names) == len(set(names))
        assert {field["type"] for field in body} <= {"input", "textarea"}
        assert all(field["attributes"]["label"] for field in body)


def test_the_citation_is_of_this_program() -> None:
    cited = loaded(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= {*cited}
    assert (cited["title"], cited["license"]) == ("fabbench", "Apache-2.0")


# ---------------------------------------------------------------- owner and version


NAMED = (
    *("pyproject.toml", "docs/tutorial-github-actions.md", "examples/ci-gate/workflow.yaml"),
    "server.json",
)
"""What names the repository that publishes fabbench."""


def test_the_owner_stands_in_what_one_command_changes() -> None:
    listed = subprocess.run(
        ["git", "grep", "-l", PLACEHOLDER], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode > 1:
        pytest.skip("not a git checkout")
    assert {*listed.stdout.split()} <= {"setup/owner", *NAMED}


@pytest.mark.local
def test_one_command_says_whose_the_project_is(tmp_path: Path) -> None:
    for name in ("setup/owner", *NAMED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in NAMED:
        (tmp_path / name).write_text(f"at https://example/{PLACEHOLDER}/issues\n")
    owner = [tmp_path / "setup/owner"]
    subprocess.run([*owner, "some-one/bench"], check=True)
    assert {(tmp_path / name).read_text() for name in NAMED} == {
        "at https://example/some-one/bench/issues\n"
    }
    done = subprocess.run([*owner, "a|b"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: setup/owner ACCOUNT/REPOSITORY\n")


def versions_of_server(folder: Path) -> set[str]:
    server = json.loads((folder / "server.json").read_text("utf-8"))
    return {server["version"], *(each["version"] for each in server["packages"])}


def test_the_mcp_registry_gets_what_is_published() -> None:
    server = json.loads((ROOT / "server.json").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    readme = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    assert f"mcp-name: {server['name']} " in readme[-1]["text"]
    assert server["repository"]["url"] == project["project"]["urls"]["Source"]
    assert len(server["description"]) <= 100
    assert versions_of_server(ROOT) == {__version__}
    (package,) = server["packages"]
    command, *options = package["packageArguments"]
    flags = {flag for each in mcp_.params for flag in each.opts}
    assert (package["identifier"], command["value"]) == ("fabbench", mcp_.name)
    assert {each["name"] for each in options} <= flags
    (extra,) = package["runtimeArguments"]
    assert extra["value"] == "fabbench[mcp]"
    assert "mcp" in project["project"]["optional-dependencies"]


def dated(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, str(folder / "setup/release.py"), *words)
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.local
def test_one_command_dates_a_version(tmp_path: Path) -> None:
    folder = tmp_path
    changelog, package = folder / "CHANGELOG.md", folder / "src/fabbench/__init__.py"
    for path in (folder / "setup/release.py", package, folder / "server.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path.relative_to(folder), path)
    changelog.write_text(
        "# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.0.1 (2025-01-01)\n\n- Old.\n"
    )
    assert dated(folder, "0.0.1").returncode == 1
    assert dated(folder, "--notes", "99.0.0").returncode == 1
    done = dated(folder, "99.0.0")
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    assert (done.returncode, done.stdout) == (0, f"99.0.0 ({today})\n")
    assert '\n__version__ = "99.0.0"\n' in package.read_text("utf-8")
    assert f'"{__version__}"' not in package.read_text("utf-8")
    assert versions_of_server(folder) == {"99.0.0"}
    expected = f"# Changelog\n\n## 99.0.0 ({today})\n\n- New.\n\n## 0.0.1 (2025-01-01)\n\n- Old.\n"
    assert changelog.read_text("utf-8") == expected
    assert dated(folder, "--notes", "99.0.0").stdout == "- New.\n"
    assert dated(folder, "--notes", "0.0.1").stdout == "- Old.\n"
    again = dated(folder, "99.0.0")
    assert again.returncode == 1
    assert "has a section 99.0.0 already" in again.stderr
    assert 'nothing is "Unreleased"' in dated(folder, "99.0.1").stderr


# ---------------------------------------------------------------- each step's script


DIGEST = '{"containerimage.digest": "sha256:ab"}'
STAND_INS = {
    "make": 'echo "make $* ${SITE_URL-}" >>"$CALLS"',
    "gh": 'echo "gh $*" >>"$CALLS"',
    "docker": f"""echo "docker $*" >>"$CALLS"
while [ $# -gt 0 ]; do [ "$1" != --metadata-file ] || echo '{DIGEST}' >"$2"; shift; done""",
    "jq": f"""exec {sys.executable} -c '
import json, pathlib, sys
print(json.loads(pathlib.Path(sys.argv[-1]).read_text())["containerimage.digest"])' "$@\"""",
    "python": f"""case "$1 $2 $3" in
"-m pip download") echo "pip $*" >>"$CALLS" && mkdir served && cp dist/*.whl served ;;
"-m pip install") echo "pip $*" >>"$CALLS" ;;
"-m venv new")
    mkdir -p new/bin && cp "$0" new/bin/python && ln -s "$PWD/setup/prepare" new/bin/fabbench ;;
*) exec {sys.executable} "$@" ;;
esac""",
}
"""Programs of a runner. What is not asked of an index is Python's."""
SERVED = "99.0.0"
TEST_INDEX = "https://test.pypi.org/simple/"


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def runner_of(tmp_path: Path) -> Job:
    """Where the steps of a workflow run, in a copy of what their scripts touch."""
    folder, programs = tmp_path / "workspace", tmp_path / "bin"
    for name in ("setup/owner", "setup/release.py", "src/fabbench/__init__.py", *NAMED):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- New.\n")
    assert dated(folder, SERVED).returncode == 0
    for name in ("dist/fabbench.whl", "dist/fabbench.tar.gz", "sbom/fabbench.cdx.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    (folder / "dist/fabbench.whl").rename(folder / f"dist/fabbench-{SERVED}.whl")
    program(folder / "setup/prepare", f'echo "prepare $*" >>"$CALLS"; echo {SERVED}')
    programs.mkdir()
    for name, text in STAND_INS.items():
        program(programs / name, text)
    env = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "GITHUB_REF_NAME": f"v{SERVED}",
        "GITHUB_REPOSITORY": "Some-One/bench",
        "GITHUB_REPOSITORY_OWNER": "Some-One",
        "GITHUB_ACTOR": "me",
    }
    inputs = {"image": "cpu", "tag": "7", "platforms": "linux/amd64"}
    contexts = {"matrix": {"targets": "lint site"}, "github": {"token": "t"}, "inputs": inputs}
    return Job(folder, env, contexts)


MADE = {
    "ci": ["prepare dev", "make lint site PYTHON=python "],
    "docs": ["make site PYTHON=python SYSTEM=no https://Some-One.github.io/bench/"],
    "image": [
        "docker login ghcr.io --username me --password-stdin",
        "docker buildx create --use",
        "docker buildx build docker/cpu --platform linux/amd64 --tag ghcr.io/some-one/bench/cpu:7 ",
    ],
    "release": [
        "make test-wheel PYTHON=python ",
        "make sbom ",
        f"pip -m pip download --no-deps --no-cache-dir --index-url {TEST_INDEX} --dest served fab",
        f"pip -m pip install served/fabbench-{SERVED}.whl",
        "prepare --version",
        f"gh release create v{SERVED} --repo Some-One/bench --verify-tag --notes-file notes.md",
    ],
}
"""What the programs are called with, each line from its beginning on."""


def unconditional(workflow: str) -> list[dict[str, Any]]:
    return [{key: step[key] for key in step if key != "if"} for step in steps(workflow)]


@pytest.mark.local
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_each_step_does_its_part(workflow: str, runner_of: Job) -> None:
    runner_of.run(unconditional(workflow))
    assert not runner_of.failed, runner_of.log
    calls = Path(runner_of.env["CALLS"]).read_text().splitlines()
    assert len(calls) == len(MADE[workflow])
    for call, expected in zip(calls, MADE[workflow], strict=True):
        assert call.startswith(expected)
    if workflow == "image":
        built = runner_of.contexts["steps"]["build"]["outputs"]
        assert built == {"name": "ghcr.io/some-one/bench/cpu", "digest": "sha256:ab"}
    if workflow == "release":
        assert (runner_of.folder / "notes.md").read_text() == "- New.\n"
        assert PLACEHOLDER not in (runner_of.folder / "pyproject.toml").read_text()


@pytest.mark.local
def test_a_tag_that_is_not_the_version_publishes_nothing(runner_of: Job) -> None:
    runner_of.env = {**runner_of.env, "GITHUB_REF_NAME": "v98.0.0"}
    runner_of.run(unconditional("release"))
    assert runner_of.failed
    assert not Path(runner_of.env["CALLS"]).exists()


# ---------------------------------------------------------------- Homebrew


def written_formula(folder: Path) -> subprocess.CompletedProcess[str]:
    """Write the formula of a release, in a copy of what it is made of."""
    file = folder / "fabbench-1.2.3.tar.gz"
    file.write_bytes(b"released")
    words = (sys.executable, str(folder / "setup/formula.py"), str(file))
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("setup/formula.py", "pyproject.toml", "uv.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.local
def test_a_formula_has_what_the_lock_has(checkout: Path) -> None:
    done = written_formula(checkout)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert re.findall(r'^  url "(.*)"', text, re.MULTILINE)[0].endswith(
        "/v1.2.3/fabbench-1.2.3.tar.gz"
    )
    assert f'  sha256 "{hashlib.sha256(b"released").hexdigest()}"' in text
    resources = re.findall(
        r'^  resource "(.*)" do\n    url "(.*)"\n    sha256 "(.*)"\n  end', text, re.MULTILINE
    )
    assert text.count("resource ") == len(resources) == len({name for name, _, _ in resources})
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    sources = {
        (each["name"], each["sdist"]["url"], each["sdist"]["hash"].removeprefix("sha256:"))
        for each in lock["package"]
        if "sdist" in each
    }
    assert set(resources) <= sources
    assert all(url.startswith("https://files.pythonhosted.org/") for _, url, _ in resources)
    of_homebrew = set(re.findall(r'depends_on "(.*)" => :no_linkage', text))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    direct = {re.split(r"[<>=!;]", each)[0] for each in project["dependencies"]}
    names = {name for name, _, _ in resources}
    assert direct - of_homebrew <= names
    assert (
        not names & {"pytest", "mkdocs", "mcp", "skypilot", "colorama", "tzdata"}
        | names & of_homebrew
    )
    # As brew audit and brew style want it
    (about,) = re.findall(r'^  desc "(.*)"$', text, re.MULTILINE)
    assert len(about) <= 80
    assert re.fullmatch(r"(?!(?:A|An|The|Fabbench) )[A-Z].*[^.]", about)
    built_with = re.findall(r'^  depends_on "(.*?)" => :build', text, re.MULTILINE)
    every = re.findall(r'^  depends_on "(.*?)"', text, re.MULTILINE)
    needed = every[len(built_with) :]
    assert every == [*sorted(built_with), *sorted(needed)]
    assert {"bcrypt", "pynacl", "pyyaml"} <= names
    assert {"pkgconf", "rust"} <= {*built_with}
    assert {"libsodium", "libyaml"} <= {*needed}
    if ruby := shutil.which("ruby"):
        subprocess.run([ruby, "-c"], input=text, text=True, check=True)


@pytest.mark.local
def test_a_formula_is_refused_from_another_origin(checkout: Path) -> None:
    lock = checkout / "uv.lock"
    lock.write_text(
        lock.read_text("utf-8").replace("https://files.pythonhosted.org/", "https://a/")
    )
    done = written_formula(checkout)
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no source distribution below" in done.stderr


def test_the_pages_of_the_site_have_an_address_where_it_is_known() -> None:
    (site,) = [step for step in steps("docs") if "make site" in step.get("run", "")]
    assert "SITE_URL=" in site["run"]
    assert 'os.environ.get("SITE_URL"' in (ROOT / "docs/site_files.py").read_text("utf-8")
