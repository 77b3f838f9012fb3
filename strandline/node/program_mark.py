"""The mark of the program that a process has loaded, by which a worker recognizes its node's."""

from __future__ import annotations

from importlib.metadata import version

from rlm.worker.message_shapes import message_shapes


def program_mark() -> str:
    """The release, and the shapes of its messages: commits between two releases differ, too."""
    return f"{version('strandline')}/{message_shapes()}"
