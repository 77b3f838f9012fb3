"""The command line of a benchmark that takes a few numbers."""

from __future__ import annotations

import argparse


def numbers(doc: str | None, **defaults: int) -> list[int]:
    """The numbers by their names' order, given or not; `doc` is the help text. Exits with 2 and a
    line that says what is wrong.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        parser.add_argument(name, type=_above_zero, nargs="?", default=default, help=f"({default})")
    return list(vars(parser.parse_args()).values())


def _above_zero(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
