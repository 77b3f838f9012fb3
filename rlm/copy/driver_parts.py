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
    """The tier: its metadata and its stores, the adoption of objects without a row, and the
    clean-up of left-over rows.
    """

    metadata: RemoteLogMetadataManager
    stores: TierStores
    adoption: Adoption
    clean_ups: CleanUpTasks


@dataclass(frozen=True, slots=True)
class Copying:
    """The parts of a copy: the slots that it waits for, the attempts, and the repair of damage that
    they find.
    """

    copier: Copier
    slots: CopySlots
    mender: Mender


@dataclass(frozen=True, slots=True)
class Leading:
    """The parts of claiming: a partition is claimed when the broker or its plug-in reports the
    leadership. `broker` None: standalone directories. `register` returns once this process is
    recorded as the owner of its node id; it is called before any claim. `epoch_finder` reads the
    epochs of a lost checkpoint from the batches.
    """

    broker: BrokerPort | None
    announced: Announced
    register: Callable[[], Awaitable[None]]
    claim_slots: asyncio.Semaphore
    epoch_finder: EpochFinder


@dataclass(frozen=True, slots=True)
class Brakes:
    """Reasons why a topic's copies wait, and why no irreversible step is taken; called before each
    step. `left_out`: why the topic is not tiered; the scan that ends its claim may take long.
    """

    pause_text: Callable[[str], str | None]
    left_out: Callable[[str], str | None]
    clock_trouble: Callable[[], str | None]
