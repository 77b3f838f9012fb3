"""Runs one input of the table again, by the words of a broken promise:

python -m tests.fuzz PARSER SEED NUMBER
"""

from __future__ import annotations

import sys

from tests.fuzz.engine import fuzz
from tests.fuzz.table import targets


def main(name: str, seed: int, number: int) -> None:
    """Ends with the broken promise, or says how the input was taken."""
    target = {target.name: target for target in targets()}[name]
    tally = fuzz(target, seed=seed, count=1, first=number)
    print(f"{name}, seed {seed}, input {number}: {'taken' if tally.taken else 'refused'}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
