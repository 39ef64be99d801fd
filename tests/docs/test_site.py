"""Man pages and the navigation of the site. `make site` builds the site itself."""

import re
import runpy
from pathlib import Path

import yaml

from tests.support.command_line import commands
from tests.support.paths import ROOT


def test_every_command_has_a_man_page_that_man_can_read(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "docs/man_pages.py"))["man_pages"](tmp_path)
    names = ["fabbench", *(path for path, _ in commands())]
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{each.replace(' ', '-')}.1" for each in names
    }
    page = (tmp_path / "fabbench-run-nccl.1").read_text("utf-8")
    assert page.startswith('.TH "FABBENCH RUN NCCL" "1"')
    assert "\n\\fB\\-e,\\fP \\-\\-max\\-bytes SIZE\n" in page
    assert ".SH SEE ALSO\n\\fBfabbench\\-run\\fP(1)\n" in page
    page = (tmp_path / "fabbench-report.1").read_text("utf-8")
    assert ".EX\nfabbench report last \\-o report.html\n.EE\n" in page
    found = re.findall(r"^\.B (\d+)$", page.partition(".SH EXIT STATUS\n")[2], re.MULTILINE)
    assert found == ["0", "1", "2", "3", "4", "70", "130"]


def test_the_navigation_has_every_page_once_and_so_has_the_map_for_language_models() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    lines = runpy.run_path(str(ROOT / "docs/site_files.py"))["llms"](nav).splitlines()
    pages = [line for line in lines if line.startswith("- ")]
    assert [
        line for line in pages if not re.fullmatch(r"- \[[^]]+\]\([\w/-]+\.html\): .{20,}", line)
    ] == []
    skills = (
        str(path.relative_to(ROOT).with_suffix("")) for path in ROOT.glob("skills/*/SKILL.md")
    )
    added = ["overview", "CHANGELOG", "CONTRIBUTING", "SECURITY", *skills]
    docs = ROOT / "docs"
    written = [str(path.relative_to(docs).with_suffix("")) for path in docs.rglob("*.md")]
    assert sorted(re.findall(r"\]\((.*?)\.html\)", "\n".join(pages))) == sorted([*written, *added])
