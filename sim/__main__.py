"""`python -m sim --seed N --events M`: replay a seed; several with `--seeds`, fresh ones with
`--fresh`. `--world core` is the quorum's core alone, `nodes` whole nodes around it, `tier` the
remote log manager among brokers and stores, whose `--plan nodes=3 following=True` names fields of
`sim.tier.world.Plan`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import SystemRandom

import sim.core.quorum
import sim.nodes.world
import sim.tier.world
from sim.tier.scripts import play
from sim.tier.world import Plan

WORLDS: Mapping[str, Callable[..., object]] = {
    "core": sim.core.quorum.run,
    "nodes": sim.nodes.world.run,
    "tier": sim.tier.world.run,
}
SEED_MAX = 1 << 31


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--world", choices=sorted(WORLDS), default="nodes")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--fresh", action="store_true", help="seeds nobody chose")
    parser.add_argument("--events", type=int, default=5000, help="events before healing")
    parser.add_argument("--plan", nargs="+", metavar="FIELD=VALUE", help="of the tier's world")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--script", type=Path, help="play a script (sim/tier/scripts.py) instead")
    arguments = parser.parse_args()
    if arguments.script is not None:
        print(play(arguments.script.read_text()), end="")
        return 0
    run, failed = WORLDS[arguments.world], 0
    if arguments.plan is not None:
        if arguments.world != "tier":
            parser.error("--plan: only the world `tier` has plans")
        try:
            run = partial(run, plan=planned(arguments.plan))
        except (SyntaxError, TypeError, ValueError) as error:
            parser.error(f"--plan: {error}; name fields of sim.tier.world.Plan, as nodes=3")
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    if arguments.fresh:
        seeds = range(first := SystemRandom().randrange(SEED_MAX), first + arguments.seeds)
    for seed in seeds:
        trace: list[str] | None = [] if arguments.trace else None
        try:
            print(run(seed, arguments.events, trace=trace), flush=True)
        except Exception as error:  # noqa: BLE001 - a fault of the world's own fails its seed alone
            failed += 1
            print(f"seed {seed}: {type(error).__name__} {error}", flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exception(error)
        finally:
            for line in trace or ():
                print(line)
    return 1 if failed else 0


def planned(words: Sequence[str]) -> Plan:
    """A plan from `field=value` words. TypeError, ValueError, SyntaxError: no such field
    or value.
    """
    named = (word.partition("=") for word in words)
    return Plan(**{name: literal_eval(value) for name, _, value in named})


if __name__ == "__main__":
    sys.exit(main())
