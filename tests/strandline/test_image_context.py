"""The image's build context holds what the image needs, by .dockerignore."""

from __future__ import annotations

import pytest

from tests.real.dockerfile import Instruction, instructions, is_in_context
from tests.real.toolbox import REPOSITORY

IGNORE = (REPOSITORY / ".dockerignore").read_text().splitlines()


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("hatch_build.py", True),
        ("pipeline/decode/kernel.pyx", True),
        ("pyspark_strandline/__init__.py", True),
        ("strandline/settings/settings.py", True),
        ("strandline/__pycache__/settings.cpython-311.pyc", False),
        ("pipeline/decode/kernel.cpython-311-x86_64-linux-gnu.so", False),
        ("api/ui/dist/index.html", True),
        ("api/ui/node_modules/uplot/package.json", False),
        ("tests/conftest.py", False),
        (".git/config", False),
        ("credentials", False),
    ],
)
def test_the_context_has_what_the_build_copies_and_nothing_else(path: str, kept: bool) -> None:
    assert is_in_context(path, IGNORE) is kept


def test_everything_that_is_copied_is_in_the_context() -> None:
    steps = instructions((REPOSITORY / "Dockerfile").read_text())
    copied = [
        source
        for step in steps
        if step.name == "COPY" and "--from" not in step.text
        for source in step.words[:-1]
    ]
    assert len(copied) > 10
    for source in copied:
        assert (REPOSITORY / source).exists(), source
        assert is_in_context(source, IGNORE), source


def test_continued_lines_and_comments_are_read_as_docker_reads_them() -> None:
    text = '# a comment\nFROM x AS y\nRUN a \\\n# between\n && b\nCMD ["c", "d"]\n'
    assert instructions(text) == [
        Instruction("FROM", "x AS y"),
        Instruction("RUN", "a  && b"),
        Instruction("CMD", '["c", "d"]'),
    ]
    with pytest.raises(ValueError, match="no instruction ARG"):
        instructions("ARG x")
