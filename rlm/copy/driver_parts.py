"""The parts that a partition's driver works with, grouped by what they are for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rlm.copy.copier import Copier
from rlm.copy.copy_slots import CopySlots
from rlm.copy.mending import Mender
from rlm.copy.scanner import BrokerPort
from rlm.delete.clean_up_tasks import CleanUpTasks
from rlm.leadership.announced import Announced
from rlm.local_log.lost_epochs import EpochFinder
from rlm.reconcile.adoption import Adoption
from rlm.stores.tier_store import TierStores
from rlmm.manager.manager import RemoteLogMetadataManager


@dataclass(frozen=True, slots=True)
class Tier:
    """The tier: its metadata and its stores, what the stores have without a row (adoption), and
    rows that go again.
    """

    metadata: RemoteLogMetadataManager
    stores: TierStores
    adoption: Adoption
    clean_ups: CleanUpTasks


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy waits for a slot, is made, and mends the damage that it finds."""

    copier: Copier
    slots: CopySlots
    mender: Mender


@dataclass(frozen=True, slots=True)
class Leading:
    """A partition is claimed by the broker's word, or its plug-in's. `broker` None: standalone
    directories. `register` returns once this process is known to own its node id: before any claim.
    `epoch_finder` reads from batches what the broker's lost checkpoint had.
    """

    broker: BrokerPort | None
    announced: Announced
    register: Callable[[], Awaitable[None]]
    claim_slots: asyncio.Semaphore
    epoch_finder: EpochFinder


@dataclass(frozen=True, slots=True)
class Brakes:
    """Reasons why a topic's copies wait, and why nothing irreversible is done: asked each time.
    `left_out`: why the topic is not tiered; the look that ends its claim may take long.
    """

    pause_text: Callable[[str], str | None]
    left_out: Callable[[str], str | None]
    clock_trouble: Callable[[], str | None]
