"""Documents: their links lead somewhere, the page of benchmarks has them all, and the page of the
architecture stays one page whose names exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.test_tidy import PACKAGES, REPOSITORY, relative, tracked

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
HEADING = re.compile(r"^#+ +(.*)$", re.M)
PARTS_OF_BENCHMARKS = ("copy_loop_delay", "metadata_node", "quorum_load")
"""Programs that the others start."""
ARCHITECTURE = REPOSITORY / "docs" / "ARCHITECTURE.md"
ROOMS_MAX = 22
WORDS_MAX = 1_500
"""With the picture's signs and the table's bars."""
FILE_NAMED = re.compile(r"`([\w*/]+\.(?:py|md)|[\w/]+/)`")
DEFINITION_NAMED = re.compile(r"`(?:\w+\.)?(\w+)` in\s+`([\w/]+\.py)`")


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


def absent(text: str, homes: Iterable[Path]) -> list[str]:
    """Files, folders and definitions that `text` names and that are not there. Names are seen from
    the repository's root, or from one of `homes`.
    """
    places = (REPOSITORY, *homes)
    found = [
        name
        for name in FILE_NAMED.findall(text)
        if not any(path for place in places for path in place.glob(name))
    ]
    for name, file in DEFINITION_NAMED.findall(text):
        paths = [path for place in places for path in place.glob(file)]
        if not any(re.search(rf"(def|class) {name}\b", path.read_text()) for path in paths):
            found.append(f"{name} in {file}")
    return found


def packages() -> list[Path]:
    """Every folder of shipped Python."""
    folders = [path.parent for path in tracked("*__init__.py")]
    return [each for each in folders if relative(each).partition("/")[0] in PACKAGES]


def test_the_page_of_the_architecture_stays_one_page() -> None:
    page = ARCHITECTURE.read_text()
    assert len(re.findall(r"^\| `", page, re.M)) <= ROOMS_MAX
    assert len(page.split()) <= WORDS_MAX


def test_the_page_of_the_architecture_names_what_exists() -> None:
    assert absent(ARCHITECTURE.read_text(), packages()) == []


def test_walks_through_packages_name_what_exists() -> None:
    walks = {relative(path): (path / "__init__.py").read_text() for path in packages()}
    gone = {name: absent(text, [REPOSITORY / name]) for name, text in walks.items()}
    assert {name: found for name, found in gone.items() if found} == {}


def test_every_package_is_on_the_page_or_in_the_walk_of_the_one_above() -> None:
    page = ARCHITECTURE.read_text()
    unnamed = []
    for name in map(relative, packages()):
        top, _, below = name.partition("/")
        rows = re.findall(rf"^\|.*`{top}/.*$", page, re.M)
        text = "\n".join([*rows, (REPOSITORY / top / "__init__.py").read_text()])
        if (f"`{name}/`" not in text and f"`{below}/`" not in text) if below else not rows:
            unnamed.append(name)
    assert unnamed == []


def test_names_of_nothing_are_found() -> None:
    text = "`rlm/nowhere/` `nowhere.py` `rlm/copy/` `nothing` in `copier.py` `s3*.py`"
    homes = [REPOSITORY / "rlm" / "copy"]
    assert absent(text, homes) == ["rlm/nowhere/", "nowhere.py", "s3*.py", "nothing in copier.py"]
