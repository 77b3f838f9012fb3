"""The command line of a benchmark that takes a few numbers."""

from __future__ import annotations

import argparse
from pathlib import Path

AIVEN_HELP = (
    "add a broker with Aiven's plug-in: the folder of its jars, built from its source (tag v1.1.1, "
    "modules commons, core, storage/core, storage/s3), and of what they need at run time, without "
    "slf4j"
)


def numbers(doc: str | None, **defaults: int) -> list[int]:
    """The numbers by their names' order, given or not; `doc` is the help text. Exits with 2 and a
    line that says what is wrong.
    """
    return list(vars(_parser(doc, defaults).parse_args()).values())


def numbers_and_aiven(doc: str | None, **defaults: int) -> tuple[list[int], Path | None]:
    """The numbers likewise, and the folder of `--aiven`, None if it is not given."""
    parser = _parser(doc, defaults)
    parser.add_argument("--aiven", type=_folder_of_jars, metavar="DIR", help=AIVEN_HELP)
    *found, folder = vars(parser.parse_args()).values()
    return found, folder


def _parser(doc: str | None, defaults: dict[str, int]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        parser.add_argument(name, type=_above_zero, nargs="?", default=default, help=f"({default})")
    return parser


def _above_zero(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _folder_of_jars(text: str) -> Path:
    if not any(Path(text).glob("*.jar")):
        raise argparse.ArgumentTypeError(f"there are no jars in {text!r}")
    return Path(text).absolute()
