"""Documents: their links lead somewhere, and the page of benchmarks has them all."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.test_tidy import REPOSITORY, relative, tracked

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
HEADING = re.compile(r"^#+ +(.*)$", re.M)
PARTS_OF_BENCHMARKS = ("copy_loop_delay", "metadata_node", "quorum_load")
"""Programs that the others start."""


def anchors(text: str) -> set[str]:
    """Each heading's anchor, as GitHub makes it."""
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in HEADING.findall(FENCED.sub("", text))
    }


def broken(document: Path) -> list[str]:
    """Links of `document` to files or headings of ours that are not there."""
    found = []
    for link in LINK.findall(FENCED.sub("", document.read_text())):
        path, _, anchor = unquote(link).partition("#")
        target = document.parent / path if path else document
        if "://" in link:
            continue
        there = target.resolve().exists()
        if not there or (anchor and anchor not in anchors(target.read_text())):
            found.append(link)
    return found


@pytest.mark.parametrize("name", [relative(path) for path in tracked("*.md")])
def test_links_lead_somewhere(name: str) -> None:
    assert broken(REPOSITORY / name) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# The one & only\n[a](#the-one--only) [b](b.md) [c](a.md#none) [d](https://example.com)\n"
    )
    assert broken(document) == ["b.md", "a.md#none"]


def test_the_page_of_benchmarks_has_a_row_of_each_and_no_others() -> None:
    page = (REPOSITORY / "docs" / "BENCHMARKS.md").read_text()
    named = re.findall(r"\| `(\w+)(?: \d+)?` \|$", page, re.M)
    commands = [
        path.stem
        for path in tracked("bench/*.py")
        if 'if __name__ == "__main__"' in path.read_text()
    ]
    assert sorted([*named, *PARTS_OF_BENCHMARKS]) == sorted(commands)
