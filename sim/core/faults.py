"""Faults of a seed, and the bounds that keep them survivable.

Each seed draws a subset (swarm testing): a world with every fault at once hardly gets anywhere.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rlmm.raft.actions import Role
from sim.core.disk import Disk

if TYPE_CHECKING:
    from sim.core.quorum import World
    from sim.core.replica_host import ReplicaHost

KINDS = (
    "drop", "duplicate", "late", "partition", "one_way", "isolate_leader", "pause", "clock",
    "crash", "crash_leader", "crash_at_action", "slow_disk", "stale_flush", "torn", "damage",
    "wipe", "formatted_again", "formatted_between_leaders", "impostor", "small_fetch",
)  # fmt: skip


class Faults:
    """The faults of a world, until `stop` begins the healing phase."""

    def __init__(self, world: World) -> None:
        self._world = world
        random = world.random
        percent = random.choice((15, 30, 60))
        self.kinds = frozenset(kind for kind in KINDS if random.randrange(100) < percent)
        if world.voter_count == 1:
            self.kinds |= {"crash", "damage"}  # a tail with a voter set in it
        self._crash_permille = random.choice((2, 10, 30)) if "crash_at_action" in self.kinds else 0
        self._period_ms = random.choice((30, 100, 300))
        self._down_ms = random.choice((100, 1000, 3000))
        self.stale_flush_permille = 700 if "stale_flush" in self.kinds else 0
        self._cut_off_by_hand: ReplicaHost | None = None
        self._on = True

    def begin(self) -> None:
        world, draw = self._world, self._world.random.randrange
        network = world.network
        if "drop" in self.kinds:
            network.drop_permille = draw(10, 150)
        if "duplicate" in self.kinds:
            network.duplicate_permille = draw(10, 200)
        if "late" in self.kinds:
            network.late_permille = draw(10, 300)
        if "small_fetch" in self.kinds:
            world.batches_per_fetch = 1
        if "formatted_between_leaders" in self.kinds:
            self._format_between_leaders()
        self._next()

    def stop(self) -> None:
        """Heal the network, the clocks and the disks' speed; nothing breaks from now on."""
        self._on = False
        self._crash_permille = self.stale_flush_permille = 0
        world = self._world
        world.network.heal()
        world.batches_per_fetch = 1000
        for host in world.hosts:
            host.clock.set_rate(1000, world.schedule.now_ms)
            host.flush_ms = host.persist_ms = 2
            if host.paused:
                host.resume()
            if host.core is None:
                self._restart(host)

    def _next(self) -> None:
        if self._on:
            self._inject()
            delay_ms = 1 + self._world.random.randrange(2 * self._period_ms)
            self._world.schedule.after(delay_ms, self._next)

    def _inject(self) -> None:
        world = self._world
        random = world.random
        kind = random.choice(sorted(self.kinds) or KINDS[:1])
        host = random.choice(world.hosts)
        match kind:
            case "partition":
                self._part(random.sample(world.hosts, len(world.hosts) // 2))
            case "one_way":
                for other in random.sample(world.hosts, random.randrange(1, len(world.hosts))):
                    world.network.cut(host.name, other.name)
            case "isolate_leader":
                leaders = [h for h in world.hosts if h.visible_role is Role.LEADER]
                if leaders:
                    self._part([random.choice(leaders)])
            case "pause":
                if host.core is not None and not host.paused:
                    host.pause()
                    call = partial(self._resume, host, host.incarnation)
                    world.schedule.after(random.randrange(1, 5000), call)
            case "clock":
                host.clock.set_rate(random.choice((700, 900, 1000, 1300)), world.schedule.now_ms)
                host.clock.offset_ms += random.choice((0, 0, 500, 5000))
            case "slow_disk":
                host.flush_ms = random.choice((2, 20, 200, 1000))
                host.persist_ms = random.choice((2, 20, 200))
            case "crash":
                self.crash(host)
            case "crash_leader":
                for leader in [h for h in world.hosts if h.visible_role is Role.LEADER]:
                    self.crash(leader)
            case "wipe":
                self._wipe(host)
            case "formatted_again":
                self._format_again(host)
            case "damage":
                if host.core is not None and self._may_lose(host):
                    host.crash(damage=True)
                    self._restart_without_leader(host)
            case _:
                pass

    def crash_here(self) -> bool:
        """True if the power goes now; asked before every action."""
        return self._crash_permille > 0 and (
            self._world.random.randrange(1000) < self._crash_permille
        )

    def crash(self, host: ReplicaHost) -> None:
        if host.core is None:
            return
        random = self._world.random
        damage = "damage" in self.kinds and random.randrange(2) == 0 and self._may_lose(host)
        host.crash(torn="torn" in self.kinds and random.randrange(2) == 0, damage=damage)
        self._world.schedule.after(random.randrange(1, self._down_ms), partial(self._restart, host))

    def _restart(self, host: ReplicaHost) -> None:
        if host.core is None:
            host.start()

    def _resume(self, host: ReplicaHost, incarnation: int) -> None:
        if host.incarnation == incarnation and host.paused:
            host.resume()

    def _part(self, side: list[ReplicaHost]) -> None:
        hosts = self._world.hosts
        self._world.network.part([each.name for each in side], [each.name for each in hosts])

    # ---- losing synced data: never more than what a minority may lose

    def _may_lose(self, host: ReplicaHost) -> bool:
        """True if each voter set in force, or asked for, keeps a majority that lost nothing."""
        world = self._world
        live = world.live_disks()
        in_force = world.voter_sets_in_force()
        asked = (
            tuple(key for key in keys if key != leaving)
            for keys in in_force
            for leaving in world.workload.leaving()
        )
        for keys in (*in_force, *asked):
            sound = 0
            for key in keys:
                disk = world.disks.get(key)
                if disk is not None and disk in live and not disk.lost_synced:
                    sound += key != host.disk.key
            if host.disk.key in keys and sound < len(keys) // 2 + 1:
                return False
        return True

    def _wipe(self, host: ReplicaHost) -> None:
        world = self._world
        if host.name.startswith("impostor") or not self._may_lose(host) or host.disk.lost_synced:
            return
        host.crash()
        world.new_disk(host)
        world.schedule.after(world.random.randrange(1, 3000), partial(self._restart, host))

    def _may_format_again(self, host: ReplicaHost) -> bool:
        disk = host.disk
        first = disk.key in disk.format_voters.keys and not host.name.startswith("impostor")
        # One alone in its line would lead at once, as the operations page says.
        first = first and len(disk.format_voters.keys) > 1
        return first and not disk.lost_synced and self._may_lose(host)

    def _format_again(self, host: ReplicaHost) -> None:
        """An initial voter loses its disk and is formatted as it was the first time."""
        if self._may_format_again(host):
            host.crash()
            self._world.same_disk(host)
            self._restart_without_leader(host)

    def _format_between_leaders(self) -> None:
        """Wait for two leaders, the older of which has not noticed yet: then a voter is formatted
        again that only the older one reaches. A leader is cut off to get there.
        """
        world = self._world
        if not self._on:
            return
        world.schedule.after(20, self._format_between_leaders)
        leaders = [h for h in world.hosts if h.core is not None and h.core.established]
        if len(leaders) == 1 and leaders[0] is not self._cut_off_by_hand:
            self._cut_off_by_hand = leaders[0]
            leaders[0].clock.set_rate(500, world.schedule.now_ms)  # it notices late
            self._part(leaders)
        others = [h for h in world.hosts if h not in leaders and self._may_format_again(h)]
        if len(leaders) > 1 and others:
            host = world.random.choice(others)
            host.crash()
            world.same_disk(host)
            world.network.blocked.clear()
            self._part([max(leaders, key=lambda each: each.visible_epoch)])
            world.schedule.after(1, partial(self._restart, host))

    def _restart_without_leader(self, host: ReplicaHost) -> None:
        """Restart while the leaders, which have the lost records, are away: most dangerous."""
        world = self._world
        world.schedule.after(world.random.randrange(1, 200), partial(self._restart, host))
        self._part([each for each in world.hosts if each.visible_role is Role.LEADER])


def impostor_disk(like: Disk, directory_id: str) -> Disk:
    """A second machine formatted with the node id of another."""
    return Disk(like.key._replace(directory_id=directory_id), like.format_voters)
