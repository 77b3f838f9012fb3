"""Make docs/demo.svg: what `make demo` prints, as a picture of a terminal.

    .venv/bin/python -m tests.capture.capture_demo_picture

runs the demo (a minute). `tests/strandline/cli/test_demo_command.py` compares the picture with what
the demo prints, but for numbers, names and who leads.
"""

from __future__ import annotations

import io
import re
import subprocess
from itertools import groupby
from xml.etree import ElementTree

from rich.console import Console
from rich.text import Text

from tests.real.toolbox import REPOSITORY
from tests.strandline.command import COMMAND, environment

PICTURE = REPOSITORY / "docs" / "demo.svg"
LAST_LINE = re.compile(r"^.*: nothing is lost$", re.M)
WIDTH = 108
DEADLINE_S = 240
HEADINGS = ("topic ", "node  ")


def shown(printed: str) -> str:
    """The part of the demo's output that the picture has."""
    last = LAST_LINE.search(printed)
    assert last is not None, printed
    return printed[: last.end()]


def shape(text: str) -> list[str]:
    """The lines of an output without what differs from run to run, in any order."""
    lines = (
        re.sub(r"\b(leader|follower)\b(?=\s+\d)", "follower", each) for each in text.splitlines()
    )
    return sorted(
        " ".join(re.sub(r"\b[0-9a-f]{12}\b|\d[\d.]*", "0", each).split()) for each in lines
    )


def picture_text() -> str:
    """The lines of the picture, without the command above them."""
    tree = ElementTree.parse(PICTURE)
    found = [
        (float(each.attrib["y"]), float(each.attrib["x"]), "".join(each.itertext()))
        for each in tree.iter("{http://www.w3.org/2000/svg}text")
        if "clip-path" in each.attrib
    ]
    lines = [
        "".join(text for *_, text in sorted(group)).replace("\N{NO-BREAK SPACE}", " ").rstrip()
        for _, group in groupby(sorted(found), key=lambda each: each[0])
    ]
    return "\n".join(lines[1:])


def main() -> None:
    """Run the demo and write the picture."""
    printed = subprocess.run(
        [*COMMAND, "demo"],
        capture_output=True, text=True, check=True, timeout=DEADLINE_S, env=environment(),
    ).stdout  # fmt: skip
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    console.print(Text("$ make demo", style="bold green"))
    for line in shown(printed).splitlines():
        if line.startswith(HEADINGS):
            console.print(Text(line, style="bold"))
        elif line.startswith("kill -9"):
            console.print(Text(line, style="bold red"))
        elif LAST_LINE.match(line):
            console.print(Text(line, style="bold green"))
        else:
            console.print(Text(line))
    drawn = console.export_svg(title="strandline", unique_id="demo")
    # The page that shows it has a font of its own; nothing is fetched from elsewhere.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.S)
    # Some viewers drop the spaces that a line begins with, without this.
    drawn = drawn.replace("<svg ", '<svg xml:space="preserve" ', 1)
    PICTURE.write_text(re.sub(r"[ \t]+$", "", drawn, flags=re.M))


if __name__ == "__main__":
    main()
