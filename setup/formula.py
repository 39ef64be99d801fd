"""Write Homebrew's formula of a release: `python setup/formula.py dist/fabbench-1.2.3.tar.gz`.

Its resources are the source distributions of uv.lock, with their hashes; what Homebrew has itself
is taken from there. It installs the file from the release on GitHub.
"""

import hashlib
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "3.14"
OF_HOMEBREW = ("certifi", "cryptography", "numpy", "pydantic")
"""Packages that are formulas of the same name, with all that they need."""
LINKED = ("libsodium", "libyaml", f"python@{PYTHON}")
"""Formulas that resources (pynacl, pyyaml) are built with, and run with."""
ORIGIN = "https://files.pythonhosted.org/packages/"
_OWNED = frozenset({"cffi", "pycparser"})
"""What these bring for others, too."""
SYSTEMS = ("darwin", "linux")
_EACH = Template("""
  resource "$name" do
    url "$url"
    sha256 "$digest"
  end
""")
_FORMULA = Template("""\
class Fabbench < Formula
  include Language::Python::Virtualenv

  desc "$about"
  homepage "$home"
  url "$home/releases/download/v$version/$file"
  sha256 "$digest"
  license "$license"

  depends_on "pkgconf" => :build # for bcrypt
  depends_on "rust" => :build # for bcrypt
$needed
$resources
  def install
    virtualenv_install_with_resources
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/fabbench --version")
  end
end
""")

Package = Mapping[str, Any]


def applies(marker: str) -> bool:
    """Return whether what has a marker is installed on a system of Homebrew, without extras."""
    full = {"python_full_version": f"{PYTHON}.0", "python_version": PYTHON, "extra": ""}
    named = [{**full, "sys_platform": each, "platform_system": each.title()} for each in SYSTEMS]
    return not marker or any(map(Marker(marker).evaluate, named))


def installed(lock: Package) -> Iterator[Package]:
    """Yield what fabbench needs, each once, but for what Homebrew has."""
    known = {(each["name"], each.get("version")): each for each in lock["package"]}
    versions = dict(known.keys())  # Of one with several, it is said which is needed
    seen = {*OF_HOMEBREW, *_OWNED}
    waiting = [each for each in lock["package"] if each["name"] == "fabbench"]
    for package in waiting:
        for needed in package.get("dependencies", ()):
            name = needed["name"]
            if name not in seen and applies(needed.get("marker", "")):
                seen.add(name)
                found = known[name, needed.get("version", versions[name])]
                waiting.append(found)
                yield found


def resource(package: Package) -> str:
    """Return a package as a resource, from where all get it."""
    name = package["name"]
    source = package.get("sdist")
    if source is None or not source["url"].startswith(ORIGIN):
        sys.exit(f"formula: {name} has no source distribution below {ORIGIN} in uv.lock.")
    digest = source["hash"].removeprefix("sha256:")
    return _EACH.substitute(name=name, url=source["url"], digest=digest)


def formula(file: Path) -> str:
    """Return the formula that installs a source distribution of fabbench."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    packages = sorted(installed(lock), key=lambda each: str(each["name"]))
    needed = {name: f'  depends_on "{name}" => :no_linkage' for name in OF_HOMEBREW}
    needed |= {name: f'  depends_on "{name}"' for name in LINKED}
    return _FORMULA.substitute(
        about=project["description"].removesuffix("."),
        home=project["urls"]["Source"],
        version=file.name.removeprefix("fabbench-").removesuffix(".tar.gz"),
        file=file.name,
        digest=hashlib.sha256(file.read_bytes()).hexdigest(),
        license=project["license"],
        # In the order that brew style wants
        needed="\n".join(needed[name] for name in sorted(needed)),
        resources="".join(map(resource, packages)),
    )


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".tar.gz"):
        sys.exit("usage: python setup/formula.py dist/fabbench-X.Y.Z.tar.gz")
    sys.stdout.write(formula(Path(sys.argv[1])))
