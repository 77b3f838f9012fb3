"""`python -m sim --seed N --events M`: replay a seed; several with `--seeds`."""

from __future__ import annotations

import argparse
import sys

from sim.quorum import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--events", type=int, default=5000, help="events before healing")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        trace: list[str] | None = [] if arguments.trace else None
        try:
            print(run(seed, arguments.events, trace=trace))
        except AssertionError as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__} {error}")
        finally:
            for line in trace or ():
                print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
