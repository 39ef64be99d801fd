"""What hadolint does not check of the Dockerfiles, and their scripts; see test_build.py."""

import os
import re
import shlex
import subprocess
import tarfile
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from fabbench.catalog.images import LIBRARY_FOLDERS, PROGRAM_FOLDERS, images
from tests.support.dockerfile import read
from tests.support.needed import need
from tests.support.paths import DATA, ROOT

DOCKER = ROOT / "docker"
BENCHMARK = DOCKER / "benchmark"
ALL = read(BENCHMARK / "Dockerfile")
GLOBALS = dict(each.text.split("=", 1) for each in ALL if each.name == "ARG" and not each.stage)
(ENV,) = (each.text.split() for each in ALL if each.name == "ENV" and each.stage == "benchmark")
SCRIPTS = ("base-image", "clone", "fetch-efa", "gencode", "install-efa", "sshd-in-pod")


def runs(word: str) -> list[list[str]]:
    """Return the words of every RUN that starts with this one."""
    return [
        shlex.split(each.text)
        for each in ALL
        if each.name == "RUN" and each.text.split()[0] == word
    ]


# ---------------------------------------------------------------- whatever comes in is known


def test_base_images_are_pinned_by_digests() -> None:
    pinned = re.compile(r"docker\.io/[\w./-]+:(?!latest)[\w.-]+@(sha256:[0-9a-f]{64})")
    froms = [
        each for path in DOCKER.glob("*/Dockerfile") for each in read(path) if each.name == "FROM"
    ]
    stages = {each.stage for each in froms if " AS " in each.text}
    bases = {
        re.sub(r"\$\{(\w+)\}", lambda found: GLOBALS[found[1]], each.text.split()[0])
        for each in froms
    } - stages
    digests = {found[1] for base in bases if (found := pinned.fullmatch(base))}
    assert len(digests) == len(bases) == 4, bases


def test_sources_are_checked_by_commit_hash_or_key() -> None:
    clones = runs("clone")
    assert len(clones) == 5
    for _, url, tag, commit, _ in clones:
        name = tag.removeprefix("$").removesuffix("_VERSION")
        assert url.startswith("https://github.com/")
        assert commit == f"${name}_COMMIT"
        assert re.fullmatch(r"v?\d+(\.\d+)+(-\d+)?", GLOBALS[f"{name}_VERSION"])
        assert re.fullmatch(r"[0-9a-f]{40}", GLOBALS[f"{name}_COMMIT"])
    ((_, url, digest, _),) = runs("fetch-archive")
    assert (digest, "$NVSHMEM_VERSION" in url) == ("$NVSHMEM_HASH", True)
    assert re.fullmatch(r"sha256-[0-9A-Za-z+/]{43}=", GLOBALS["NVSHMEM_HASH"])
    ((_, _, _, key, _),) = runs("fetch-efa")
    assert key == "$EFA_KEY_FINGERPRINT"
    assert re.fullmatch(r"[0-9A-F]{40}", GLOBALS[key.removeprefix("$")])


DOWNLOADS = re.compile(
    r"(?:^|[\s;&|(\"'/])(apt|aria2c|cargo|conda|curl|ftp|gem|git|go|npm|pip3?|pipx|rsync|scp|sftp|svn|uv|wget)(?=\s)"
)
REFUSED = re.compile(
    r"allow-unauthenticated|allow-insecure|trusted=yes|no-check-certificate|--insecure|curl -k"
    r"|id_rsa|id_ed25519|PRIVATE KEY|password=|^ADD "
)


def test_nothing_else_is_downloaded_and_no_secret_is_copied() -> None:
    found = {}
    for path in (path for folder in ("benchmark", "cpu") for path in (DOCKER / folder).iterdir()):
        text = re.sub(
            r"apt-get install [^&|;\n]*", "", path.read_text("utf-8").replace("\\\n", " ")
        )
        lines = [line for line in text.splitlines() if line.strip()[:1] != "#"]
        assert not any(map(REFUSED.search, lines)), path
        if words := {word for line in lines for word in DOWNLOADS.findall(line)}:
            found[path.name] = words
    assert found == {"clone": {"git"}, "fetch-efa": {"curl"}}
    # What installs sshd removes the host keys, in the same layer.
    every = [
        each.text
        for path in DOCKER.glob("*/Dockerfile")
        for each in read(path)
        if each.name == "RUN"
    ]
    assert all(
        "/etc/ssh/ssh_host_*" in text
        for text in every
        if re.search("openssh-server|/tmp/packages", text)
    )


def test_a_step_that_fails_ends_the_build() -> None:
    """hadolint wants pipefail only where it sees a pipe."""
    strict = {
        each.stage for each in ALL if each.name == "SHELL" and '"-euo", "pipefail"' in each.text
    }
    assert {
        each.stage for each in ALL if each.name == "FROM" and each.text.split()[0] not in strict
    } == strict
    for script in SCRIPTS:
        assert re.search(
            r"^set -eu(o pipefail)?$", (BENCHMARK / script).read_text("utf-8"), re.MULTILINE
        ), script


# ---------------------------------------------------------------- what fabbench expects


def test_programs_and_libraries_are_where_fabbench_looks() -> None:
    libraries = (BENCHMARK / "libraries.conf").read_text("utf-8")
    assert {"/opt/nccl/build/lib", "/opt/amazon/ofi-nccl/lib", "/opt/nvshmem/lib"} <= (
        {*libraries.split()} & {*LIBRARY_FOLDERS}
    )
    made = libraries + " ".join(each.text for each in ALL)
    for folder, below in {
        "/opt/amazon/efa": "/bin",
        "/opt/amazon/openmpi": "/bin",
        "/opt/nccl-tests/build": "",
        "/opt/nvshmem/bin/perftest": "/device/pt-to-pt",
        "/opt/perftest/bin": "",
        "/usr/local": "/bin",
    }.items():
        assert folder in made
        assert any(fnmatchcase(folder + below, pattern) for pattern in PROGRAM_FOLDERS), folder


ROWS = {
    "CUDA": "CUDA runtime",
    "EFA_INSTALLER": "EFA installer",
    "AWS_OFI_NCCL": "aws-ofi-nccl",
    "NCCL": "NCCL",
    "NCCL_TESTS": "nccl-tests",
    "GDRCOPY": "GDRCopy",
    "NVSHMEM": "NVSHMEM and its perftests",
    "PERFTEST": "perftest with SRD and CUDA",
    "LIBFABRIC": "fabtests with CUDA",
}


def test_labels_and_pages_name_the_versions() -> None:
    page = (DOCKER / "README.md").read_text("utf-8")
    versions = {
        name.removesuffix("_VERSION"): value
        for name, value in GLOBALS.items()
        if "_VERSION" in name
    }
    table = {
        row[0].split(",")[0]: row[1]
        for row in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    }
    assert {name: table[row] for name, row in ROWS.items()} == {
        name: versions[name] for name in ROWS
    }
    of_aws = "efa{EFA_INSTALLER}-ofiv{AWS_OFI_NCCL}-nccl{NCCL}-tests{NCCL_TESTS}".format(**versions)
    assert f"tag=cuda{versions['CUDA']}-{of_aws}\n" in page
    assert any(each.image.endswith(of_aws) for each in images())
    (label,) = (each.text for each in ALL if each.name == "LABEL")
    assert {*re.findall(r'fabbench\.[\w-]+="\$\{(\w+)_VERSION\}"', label)} == {*ROWS}


# ---------------------------------------------------------------- its scripts


def call(script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command, path = (
        [str(BENCHMARK / script), *arguments],
        {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **env},
    )
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=path, timeout=60
    )


def test_shellcheck_finds_nothing() -> None:
    need("shellcheck")
    done = subprocess.run(
        ["shellcheck", *SCRIPTS], cwd=BENCHMARK, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_digest_of_another_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "usr/local/cuda-13.0").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('VERSION_ID="24.04"\n')
    for cuda, ubuntu, status, said in (
        ("13.0.2", "24.04", 0, ""),
        ("13.1.0", "24.04", 1, "CUDA 13.1"),
        ("13.0.2", "26.04", 1, "24.04 and not 26.04"),
    ):
        done = call("base-image", cuda, ubuntu, ROOT=str(tmp_path))
        assert (done.returncode, said in done.stderr) == (status, True)


@pytest.mark.local
def test_a_tag_that_moved_is_refused(tmp_path: Path) -> None:
    need("git")
    source = tmp_path / "source"
    git = ("git", "-C", str(source), "-c", "user.name=n", "-c", "user.email=e")
    subprocess.run(["git", "init", "--quiet", str(source)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "one"], check=True)
    subprocess.run([*git, "tag", "v1"], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "v1"], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert call("clone", source.as_uri(), "v1", commit, str(tmp_path / "good")).returncode == 0
    assert call("clone", source.as_uri(), "v1", "", str(tmp_path / "tag-only")).returncode != 0
    assert call("clone", source.as_uri(), "v1", "0" * 40, str(tmp_path / "moved")).returncode == 1


TREE = "sha256-chlcLB411jb6/G3bYQzYaYBGNYYfkiHcXqevnFAiJhw="
"""What Nix prints of the tree that is written below."""


@pytest.mark.local
@pytest.mark.parametrize(
    "change", ["", "chmod 644 b/run", "sed -i s/by/bY/ B.txt", "mv B.txt C.txt"]
)
def test_an_archive_that_unpacks_to_something_else_is_refused(change: str, tmp_path: Path) -> None:
    """Contents, names, links, and what may be executed all count.

    Times and how it is packed do not.
    """
    tree, into = tmp_path / "tree", tmp_path / "src/nvshmem"
    (tree / "b").mkdir(parents=True)
    (tree / "b/run").write_text("#!/bin/sh\n")
    (tree / "b/run").chmod(0o755)
    (tree / "B.txt").write_text("eight by")
    (tree / "link").symlink_to("b/run")
    subprocess.run(["sh", "-c", change], cwd=tree, check=True)
    with tarfile.open(tmp_path / "tree.tar.gz", "w:gz") as archive:
        archive.add(tree, "nvshmem-3.6.5-0")
    done = call("fetch-archive", (tmp_path / "tree.tar.gz").as_uri(), TREE, str(into))
    assert (done.returncode, TREE in done.stderr, into.exists()) == (
        (1, True, False) if change else (0, False, True)
    )


SIGN = (DATA / "image/sign").read_text("utf-8")


@pytest.mark.local
def test_only_an_installer_that_is_signed_by_the_key_is_unpacked(tmp_path: Path) -> None:
    need("gpg", "curl")
    signed = subprocess.run(
        ["bash", "-euc", SIGN], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    fetched = {}
    for name in ("efa", "other", "changed", "unsigned"):
        url, into = (tmp_path / "server" / name).as_uri(), tmp_path / "into" / name
        fetched[name] = call("fetch-efa", url, "9.9.9", signed.stdout.strip(), str(into)).returncode
        assert (into / "efa_installer.sh").is_file() == (name == "efa")
    assert fetched.pop("efa") == 0
    assert all(fetched.values()), fetched


@pytest.mark.local
def test_sshd_lets_in_root_by_key_alone(tmp_path: Path) -> None:
    need("sshd", "ssh-keygen", "unshare")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True
    )
    check = [
        "/usr/sbin/sshd",
        "-T",
        "-f",
        str(BENCHMARK / "sshd.conf"),
        "-h",
        str(tmp_path / "key"),
    ]
    if os.geteuid() == 0:
        # Root's sshd wants a directory that the machine's own makes at its start: here of the
        # test's own.
        own = 'mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$@"'
        check = ["unshare", "--mount", "sh", "-c", own, "sh", *check]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    settings = done.stdout.splitlines()
    assert {
        "permitrootlogin without-password",
        "authenticationmethods publickey",
        "allowusers root",
    } <= {*settings}
    assert "passwordauthentication no" in settings
    assert len([line for line in settings if line.startswith("setenv ")]) == 2
