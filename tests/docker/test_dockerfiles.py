"""What the Dockerfiles say. test_build.py builds what package archives allow."""

import http.server
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from fabbench.catalog.images import LIBRARY_FOLDERS, PROGRAM_FOLDERS
from tests.support.dockerfile import Instruction, read
from tests.support.needed import need
from tests.support.paths import ROOT

DOCKER = ROOT / "docker"
BENCHMARK = DOCKER / "benchmark"
SCRIPTS = ("base-image", "clone", "fetch-efa", "gencode", "install-efa", "sshd-in-pod")
PYTHON = "fetch-archive"


ALL = read(BENCHMARK / "Dockerfile")
GLOBALS = dict(each.text.split("=", 1) for each in ALL if each.name == "ARG" and not each.stage)


def every(name: str) -> list[Instruction]:
    return [each for each in ALL if each.name == name]


def stages() -> dict[str, str]:
    """Each stage, and what it is made from."""
    return {each.stage: each.text.split(" AS ")[0] for each in every("FROM")}


def with_versions(text: str) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: GLOBALS[found[1]], text)


def commands(stage: str) -> list[list[str]]:
    """The words of every RUN of a stage."""
    return [shlex.split(each.text) for each in every("RUN") if each.stage == stage]


# ---------------------------------------------------------------- pinned


PINNED = re.compile(r"docker\.io/[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


def test_base_images_are_pinned_by_digest() -> None:
    earlier: set[str] = set()
    for stage, base in stages().items():
        if base not in earlier:
            assert PINNED.fullmatch(with_versions(base)), base
            assert "latest" not in with_versions(base)
        earlier.add(stage)
    (cpu,) = [each.text for each in read(DOCKER / "cpu/Dockerfile") if each.name == "FROM"]
    assert PINNED.fullmatch(cpu)


def test_each_base_image_has_a_digest_of_its_own() -> None:
    bases = {base for stage, base in stages().items() if base not in stages()}
    digests = [with_versions(base).partition("@")[2] for base in bases]
    assert len(digests) == len(set(digests)) == 3


def test_sources_are_taken_at_a_tag_and_a_commit() -> None:
    clones = [each.text for each in every("RUN") if "clone" in each.text]
    assert len(clones) == 5
    for text in clones:
        found = re.fullmatch(r'clone https://github\.com/[\w./-]+\.git "\$(\w+)_VERSION" "\$(\w+)_COMMIT" /\S+', text)
        assert found, text
        assert found[1] == found[2]
        assert re.fullmatch(r"v?\d+(\.\d+)+(-\d+)?", GLOBALS[f"{found[1]}_VERSION"])
        assert re.fullmatch(r"[0-9a-f]{40}", GLOBALS[f"{found[1]}_COMMIT"])
    assert "git clone" not in "".join(each.text for each in ALL)


def test_an_archive_is_taken_at_a_tag_and_a_hash() -> None:
    (fetch,) = [each.text for each in every("RUN") if "fetch-archive" in each.text]
    url = "https://github.com/NVIDIA/nvshmem/archive/refs/tags/$NVSHMEM_VERSION.tar.gz"
    assert shlex.split(fetch) == ["fetch-archive", url, "$NVSHMEM_HASH", "/src/nvshmem"]
    assert re.fullmatch(r"v\d+(\.\d+)+-\d+", GLOBALS["NVSHMEM_VERSION"])
    assert re.fullmatch(r"sha256-[0-9A-Za-z+/]{43}=", GLOBALS["NVSHMEM_HASH"])


# What may bring a file into an image, and by what it is known to be the right one.
CHECKED = {
    "apt-get": "signed by the archive, whose keys the base image has",
    "clone": "a commit, given to it",
    "fetch-archive": "a hash of what is unpacked, given to it",
    "fetch-efa": "a signature, whose key's fingerprint is given to it",
    "install-efa": "what fetch-efa checked, and apt-get",
}
DOWNLOADS = re.compile(
    r"(?:^|[\s;&|(\"'/])(apt-get|apt|aria2c|cargo|clone|conda|curl|ftp|gem|git|go|fetch-archive|fetch-efa|install-efa|npm|pip3?|pipx|"
    r"rsync|scp|sftp|svn|uv|wget)(?=\s)"
)


@pytest.mark.parametrize("path", sorted(DOCKER.glob("*/Dockerfile")), ids=lambda path: path.parent.name)
def test_whatever_a_dockerfile_downloads_is_checked(path: Path) -> None:
    everything = read(path)
    assert [each.text for each in everything if each.name == "ADD"] == []
    runs = [each.text for each in everything if each.name == "RUN"]
    # Packages of these names are no commands.
    commands = [re.sub(r"apt-get install [^&|;]*", "apt-get ", text) for text in runs]
    assert {found for text in commands for found in DOWNLOADS.findall(text)} <= set(CHECKED)
    unsigned = re.compile(r"allow-unauthenticated|allow-insecure|trusted=yes|no-check-certificate|--insecure|curl -k")
    scripts = [file.read_text("utf-8") for file in path.parent.iterdir() if file.name != "README.md"]
    assert [text for text in scripts if unsigned.search(text)] == []


def test_scripts_of_the_benchmark_image_download_by_no_other_way() -> None:
    found = {
        script: {
            word
            for line in (BENCHMARK / script).read_text("utf-8").splitlines()
            if not line.lstrip().startswith("#")
            for word in DOWNLOADS.findall(line)
        }
        for script in SCRIPTS
    }
    beside_itself = {script: words - {script} for script, words in found.items() if words - {script}}
    assert beside_itself == {"clone": {"git"}, "fetch-efa": {"curl"}, "install-efa": {"apt-get"}}
    (fetch,) = [each for each in every("RUN") if each.text.startswith("fetch-efa")]
    assert '"$EFA_KEY_FINGERPRINT"' in fetch.text
    assert re.fullmatch(r"[0-9A-F]{40}", GLOBALS["EFA_KEY_FINGERPRINT"])


# ---------------------------------------------------------------- stages and steps


def test_copied_files_exist_and_scripts_can_be_run() -> None:
    copies = [each for each in every("COPY") if "--from" not in each.text]
    sources = {word for each in copies for word in each.text.split()[:-1]}
    assert sources == {*SCRIPTS, PYTHON, "libraries.conf", "sshd.conf"}
    assert all((BENCHMARK / source).is_file() for source in sources)
    assert all((BENCHMARK / script).stat().st_mode & 0o111 for script in (*SCRIPTS, PYTHON))


def test_a_step_that_fails_ends_the_build() -> None:
    bases = stages()
    strict = {each.stage for each in every("SHELL") if each.text == '["/bin/bash", "-euo", "pipefail", "-c"]'}
    for stage, base in bases.items():
        assert stage in strict or base in strict, stage
    for script in SCRIPTS:
        assert re.search(r"^set -eu(o pipefail)?$", (BENCHMARK / script).read_text("utf-8"), re.MULTILINE), script


def test_no_processor_is_named() -> None:
    for path in sorted(BENCHMARK.iterdir()):
        lines = path.read_text("utf-8").splitlines()
        named = [line for line in lines if not line.startswith("#") if re.search("x86_64|amd64|aarch64|arm64", line)]
        assert named == [], path


def test_the_last_stage_compiles_nothing_and_holds_no_key() -> None:
    last = every("FROM")[-1]
    assert "-base-ubuntu" in last.text
    words = {word for command in commands(last.stage) for word in command}
    assert not words & {"make", "cmake", "nvcc", "build-essential", "clone"}
    (install,) = [command for command in commands(last.stage) if "openssh-server" in command]
    assert install[install.index("-f") + 1] == "/etc/ssh/ssh_host_*"
    assert not re.search("id_rsa|id_ed25519|PRIVATE KEY|password", "".join(each.text for each in ALL))


def test_variables_leave_the_choice_of_the_network_to_the_run() -> None:
    (env,) = [each for each in every("ENV") if each.stage == "benchmark"]
    names = {word.split("=")[0] for word in env.text.split()}
    assert names == {
        *("LD_LIBRARY_PATH", "PATH", "NCCL_SOCKET_IFNAME", "PMIX_MCA_gds"),
        *("OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_btl_tcp_if_exclude"),
    }


# ---------------------------------------------------------------- what fabbench expects


@pytest.mark.parametrize(
    "folder",
    [
        "/opt/amazon/efa/bin",
        "/opt/amazon/openmpi/bin",
        "/opt/nccl-tests/build",
        "/opt/perftest/bin",
        "/opt/nvshmem/bin/perftest/device/pt-to-pt",
        "/usr/local/bin",
    ],
)
def test_programs_are_where_fabbench_looks(folder: str) -> None:
    assert any(fnmatchcase(folder, pattern) for pattern in PROGRAM_FOLDERS)
    made = " ".join(each.text for each in ALL) + (BENCHMARK / "libraries.conf").read_text("utf-8")
    assert folder.removesuffix("/device/pt-to-pt").removesuffix("/bin") in made


def test_libraries_are_where_fabbench_looks() -> None:
    folders = set((BENCHMARK / "libraries.conf").read_text("utf-8").split())
    assert {"/opt/nccl/build/lib", "/opt/amazon/ofi-nccl/lib", "/opt/nvshmem/lib"} <= folders & set(LIBRARY_FOLDERS)


def test_a_login_finds_what_the_container_finds() -> None:
    (env,) = [each for each in every("ENV") if each.stage == "benchmark"]
    words = env.text.split()
    (line,) = re.findall(r"^SetEnv (.*)$", (BENCHMARK / "sshd.conf").read_text("utf-8"), re.MULTILINE)
    assert line.split() == [word for word in words if word.startswith(("PATH=", "LD_LIBRARY_PATH="))]


def test_the_pages_name_the_same_versions() -> None:
    page = (DOCKER / "README.md").read_text("utf-8")
    versions = {name.removesuffix("_VERSION"): value for name, value in GLOBALS.items() if "_VERSION" in name}
    table = {row[0].split(",")[0]: row[1] for row in re.findall(r"^\| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)}
    assert {name: table[row] for name, row in ROWS.items()} == {name: versions[name] for name in ROWS}
    tag = "cuda{CUDA}-efa{EFA_INSTALLER}-ofiv{AWS_OFI_NCCL}-nccl{NCCL}-tests{NCCL_TESTS}".format(**versions)
    assert f"tag={tag}\n" in page
    assert tag in (DOCKER.parent / "docs" / "images.md").read_text("utf-8")


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


def test_labels_say_every_version() -> None:
    (label,) = every("LABEL")
    said = set(re.findall(r'fabbench\.[\w-]+="\$\{(\w+)_VERSION\}"', label.text))
    assert said == set(ROWS)


# ---------------------------------------------------------------- its scripts


@pytest.mark.local
def test_shellcheck_finds_nothing() -> None:
    need("shellcheck")
    done = subprocess.run(["shellcheck", *SCRIPTS], cwd=BENCHMARK, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


def call(script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BENCHMARK / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **env},
        timeout=60,
    )


def test_gpu_architectures_become_options_of_nvcc() -> None:
    done = call("gencode", "80;90")
    assert done.stdout == "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90\n"


def test_a_digest_of_another_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "usr/local/cuda-13.0").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME="Ubuntu"\nVERSION_ID="24.04"\n')
    answers = {
        versions: call("base-image", *versions, ROOT=str(tmp_path))
        for versions in (("13.0.2", "24.04"), ("13.1.0", "24.04"), ("13.0.2", "26.04"))
    }
    assert [done.returncode for done in answers.values()] == [0, 1, 1]
    assert "has no CUDA 13.1" in answers["13.1.0", "24.04"].stderr
    assert "is Ubuntu 24.04 and not 26.04" in answers["13.0.2", "26.04"].stderr


@pytest.mark.local
def test_a_tag_that_moved_is_refused(tmp_path: Path) -> None:
    need("git")
    source = tmp_path / "source"
    git = ("git", "-C", str(source), "-c", "user.name=n", "-c", "user.email=e")
    subprocess.run(["git", "init", "--quiet", str(source)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "one"], check=True)
    subprocess.run([*git, "tag", "v1"], check=True)
    commit = subprocess.run([*git, "rev-parse", "v1"], check=True, capture_output=True, text=True).stdout.strip()
    url = source.as_uri()
    assert call("clone", url, "v1", commit, str(tmp_path / "good")).returncode == 0
    assert call("clone", url, "v1", "", str(tmp_path / "tag-only")).returncode != 0
    moved = call("clone", url, "v1", "0" * 40, str(tmp_path / "moved"))
    assert moved.returncode == 1
    assert f"the tag v1 is at {commit}, and was at {'0' * 40}" in moved.stderr


EMPTY = "sha256-pQpattmS9VmO3ZIQUFn66az8GSmB4IvYhTTCFn6SUmo="
"""What Nix prints of an empty directory."""
TREE = "sha256-chlcLB411jb6/G3bYQzYaYBGNYYfkiHcXqevnFAiJhw="
"""Of the tree that is written below."""


def archive_of(tree: Path) -> str:
    with tarfile.open(tree.with_suffix(".tar.gz"), "w:gz") as archive:
        archive.add(tree, "nvshmem-3.6.5-0")
    return tree.with_suffix(".tar.gz").as_uri()


@pytest.mark.local
def test_an_archive_that_unpacks_to_something_else_is_refused(tmp_path: Path) -> None:
    """Contents, names, links, and what may be executed all count; times and how it is packed do not."""
    tree, into = tmp_path / "tree", tmp_path / "src/nvshmem"
    tree.mkdir()
    assert call(PYTHON, archive_of(tree), EMPTY, str(into)).returncode == 0
    assert into.is_dir()
    into.rmdir()
    (tree / "b").mkdir()
    (tree / "b/run").write_text("#!/bin/sh\n")
    (tree / "b/run").chmod(0o755)
    (tree / "B.txt").write_text("eight by")
    (tree / "link").symlink_to("b/run")
    done = call(PYTHON, archive_of(tree), TREE, str(into))
    assert (done.returncode, done.stderr) == (0, "")
    assert (into / "link").read_text() == "#!/bin/sh\n"
    changes: dict[Callable[[], object], Callable[[], object]] = {
        partial((tree / "b/run").chmod, 0o644): partial((tree / "b/run").chmod, 0o755),
        partial((tree / "B.txt").write_text, "eight bY"): partial((tree / "B.txt").write_text, "eight by"),
        partial((tree / "B.txt").rename, tree / "C.txt"): partial((tree / "C.txt").rename, tree / "B.txt"),
    }
    for change, undo in changes.items():
        change()
        refused = call(PYTHON, archive_of(tree), TREE, str(tmp_path / "src/other"))
        assert refused.returncode == 1
        assert f"and was {TREE}" in refused.stderr
        assert [path.name for path in (tmp_path / "src").iterdir()] == ["nvshmem"]
        undo()


class Server(NamedTuple):
    """What a server of the installer has, and where."""

    folder: Path
    url: str
    home: Path


def gpg(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["gpg", "--batch", "--quiet", "--homedir", str(home), "--passphrase", "", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def new_key(home: Path, name: str) -> str:
    gpg(home, "--quick-generate-key", name, "ed25519", "sign", "never")
    listed = gpg(home, "--list-keys", "--with-colons", name)
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing of what was asked for."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    need("gpg", "curl")
    home = Path(tmp_path, "gnupg")
    home.mkdir(mode=0o700)
    folder = tmp_path / "www"
    folder.mkdir()
    with tarfile.open(folder / "aws-efa-installer-9.9.9.tar.gz", "w:gz") as archive:
        archive.add(BENCHMARK / "install-efa", "aws-efa-installer/efa_installer.sh")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield Server(folder, f"http://127.0.0.1:{serving.server_port}", home)
        serving.shutdown()
        thread.join()
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)


def sign(server: Server, name: str) -> None:
    """Put the signature by a key on the server, and all the keys that there are."""
    archive = server.folder / "aws-efa-installer-9.9.9.tar.gz"
    gpg(server.home, "--yes", "--local-user", name, "--detach-sign", str(archive))
    keys = gpg(server.home, "--armor", "--export")
    (server.folder / "aws-efa-installer.key").write_text(keys)


def fetch(server: Server, fingerprint: str, into: Path) -> subprocess.CompletedProcess[str]:
    return call("fetch-efa", server.url, "9.9.9", fingerprint, str(into))


@pytest.mark.local
def test_an_installer_signed_by_the_key_is_unpacked(server: Server, tmp_path: Path) -> None:
    fingerprint = new_key(server.home, "efa")
    sign(server, "efa")
    done = fetch(server, fingerprint, tmp_path / "efa")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "efa" / "efa_installer.sh").is_file()


@pytest.mark.local
def test_an_installer_that_was_changed_or_signed_by_another_is_refused(server: Server, tmp_path: Path) -> None:
    fingerprint = new_key(server.home, "efa")
    new_key(server.home, "other")
    sign(server, "other")
    other = fetch(server, fingerprint, tmp_path / "efa")
    assert other.returncode == 1
    assert f"signed, and not by the key {fingerprint}" in other.stderr

    sign(server, "efa")
    with (server.folder / "aws-efa-installer-9.9.9.tar.gz").open("ab") as archive:
        archive.write(b"more")
    changed = fetch(server, fingerprint, tmp_path / "efa")
    assert changed.returncode == 1
    assert "is not what its signature was made for" in changed.stderr

    (server.folder / "aws-efa-installer-9.9.9.tar.gz.sig").unlink()
    assert fetch(server, fingerprint, tmp_path / "efa").returncode != 0
    assert not (tmp_path / "efa").exists()


@pytest.mark.local
def test_sshd_takes_its_settings(tmp_path: Path) -> None:
    need("sshd", "ssh-keygen")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    check = [
        shutil.which("sshd", path="/usr/sbin:/sbin") or "",
        "-T",
        "-f",
        str(BENCHMARK / "sshd.conf"),
        "-h",
        str(key),
    ]
    if os.geteuid() == 0:
        # Root's sshd wants a directory that the machine's own makes at its start: here of the test's own.
        own = 'mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$@"'
        check = ["unshare", "--mount", "sh", "-c", own, "sh", *check]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    settings = done.stdout.splitlines()
    assert "permitrootlogin without-password" in settings, done.stderr
    assert {"authenticationmethods publickey", "passwordauthentication no", "allowusers root"} <= set(settings)
    assert len([line for line in settings if line.startswith("setenv ")]) == 2
