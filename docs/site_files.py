"""Hook of mkdocs: files outside of docs/ that pages link to become part of the site.

The links stay as they are in the repository, where people read the same pages.
"""  # noqa: INP001 - mkdocs loads it by its path

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")
FENCE = re.compile(r"^```(\w+) (?:no-run: .*|(\S+))$", re.MULTILINE)
"""A block with the reason why the tests do not run it, or with the name of its file.

Readers do not see the reason.
"""
BEGINS = re.compile(r"# .*\n\n(?:<!--.*\n\n)?([\w`](?s:.+?))(?:[.:]\s|\n\n)")
"""The title of a page, and the first sentence below it."""
FRONT_MATTER = re.compile(r"---\n.*?\n---\n\s*", re.DOTALL)
SKILLS = ("skills/fabbench-diagnose/SKILL.md", "skills/fabbench-accept/SKILL.md")
ALWAYS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", *SKILLS)
README = "overview.md"
"""The README's name in the site, where a README would be an index, and there is one."""


def on_config(config: MkDocsConfig) -> None:
    """Say where the site will be, if that is known: .github/workflows/docs.yml does."""
    config.site_url = os.environ.get("SITE_URL", config.site_url)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to, and what that links to."""
    files.append(File.generated(config, "llms.txt", content=llms(config.nav or [])))
    waiting = [*ALWAYS, *(f"docs/{each.src_uri}" for each in files.documentation_pages())]
    seen = set(waiting)
    for path in waiting:
        if not path.startswith("docs/"):
            files.append(File.generated(config, _in_site(path), abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            linked = dict.fromkeys(
                _target(path, link) for link in LINK.findall((ROOT / path).read_text("utf-8"))
            )
            waiting += (
                new := [each for each in linked if each not in seen and (ROOT / each).is_file()]
            )
            seen |= {*new}
    return files


def llms(nav: Iterable[Mapping[str, Any]]) -> str:
    """Return a map of the site for language models (llmstxt.org).

    The navigation, and how each page begins.
    """
    lines = [
        "# fabbench",
        "",
        "> Benchmark a cluster's interconnect, verify which network carried the traffic.",
        "",
    ]
    for entry in nav:
        for title, below in entry.items():
            if isinstance(below, str):
                lines.append(_described(title, below))
            else:
                lines += [
                    "",
                    f"## {title}",
                    "",
                    *(_described(*page) for each in below for page in each.items()),
                ]
    return "\n".join(lines) + "\n"


def _described(title: str, page: str) -> str:
    path = ROOT / "docs" / page
    if not path.is_file():
        path = ROOT / (page if page != README else "README.md")
    begins = BEGINS.match(FRONT_MATTER.sub("", path.read_text("utf-8"), count=1))
    about = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", " ".join(begins[1].split())) if begins else ""
    return f"- [{title}]({page.removesuffix('.md')}.html){f': {about}' if about else ''}"


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links of the site."""
    del config, files
    uri = page.file.src_uri
    path = str(Path(page.file.abs_src_path or uri).relative_to(ROOT))

    def linked(match: re.Match[str]) -> str:
        return relpath(_in_site(_target(path, match[1])), str(PurePosixPath(uri).parent))

    return FENCE.sub(_fence, LINK.sub(linked, markdown))


def _fence(match: re.Match[str]) -> str:
    language, name = match.groups()
    return f'```{language} title="{name}"' if name else f"```{language}"


def _target(path: str, link: str) -> str:
    """Return what a page links to, as a path in the repository.

    A directory stands for its README.
    """
    target = normpath(PurePosixPath(path).parent / link)
    return f"{target}/README.md" if (ROOT / target / "README.md").is_file() else target


def _in_site(path: str) -> str:
    return README if path == "README.md" else path.removeprefix("docs/")
