"""`python -m sim.explore --scene led --states 100000`: search a small world breadth first.

`--bug 'the vote is not persisted'` plants one of `sim.core.planted_bugs`. Ends with 1 and prints
the shortest schedule if an invariant is broken.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from sim.core.planted_bugs import BUGS, planted
from sim.explore.scenes import SCENES
from sim.explore.space import Space


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.explore", description=__doc__)
    parser.add_argument("--scene", choices=sorted(SCENES), default="led")
    parser.add_argument("--states", type=int, default=100_000, help="stop after so many")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant this one")
    arguments = parser.parse_args()
    with planted(arguments.bug) if arguments.bug else nullcontext():
        found = Space(SCENES[arguments.scene]).search(arguments.states)
    end = "all there are" if found.exhausted else "there are more"
    print(f"{found.states} states ({end}), {found.steps} steps of hosts")
    print("new states by depth:", *found.by_depth)
    if found.broken is None:
        return 0
    for line in found.broken.moves:
        print(line)
    print(found.broken.message)
    return 1


if __name__ == "__main__":
    sys.exit(main())
