"""The stores of one task or plan, opened on first use, with their buffers and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Self

from kafka_formats.errors import InvalidRequest, NotFound, RetryLater
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.process import ambient
from pipeline.read.object_stream import ObjectStream
from pipeline.read.segment_slice import AIVEN_KEYS_OPTION
from rlm.data_plane.aiven_keys import AivenKeys
from rsm_backends.blocking_reads import BlockingStore, open_blocking
from rsm_backends.store_config import StoreConfig


@dataclass(frozen=True, slots=True)
class OpenStore:
    """One store, ready to read."""

    config: StoreConfig
    reads: BlockingStore
    stream: ObjectStream


class OpenStores:
    """`with OpenStores(configs, key_paths) as stores:`; opened stores are closed at the end.

    `readers` is the number of threads that read segments at once; they end before the block does.
    """

    def __init__(
        self,
        configs: Mapping[str, StoreConfig],
        key_paths: Iterable[str] = (),
        *,
        readers: int = 1,
    ) -> None:
        self._configs = configs
        self._key_paths = tuple(key_paths)
        self._readers = readers
        self._keys: AivenKeys | None = None
        self._open: dict[str, OpenStore] = {}
        self._opening = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._open.values():
            store.stream.close()
            store.reads.close()
        self._open.clear()

    @property
    def keys(self) -> AivenKeys:
        """The private keys, read for the first encrypted segment."""
        if self._keys is None:
            self._keys = AivenKeys.load(self._key_paths, setting=AIVEN_KEYS_OPTION)
        return self._keys

    def of(self, segment: TieredSegment) -> OpenStore:
        """The store of a segment. InvalidRequest if no option gives its address; RetryLater if its
        folder is not there.
        """
        with self._opening:
            found = self._open.get(segment.store)
            if found is None:
                found = self._open[segment.store] = self._opened(segment)
        return found

    def _opened(self, segment: TieredSegment) -> OpenStore:
        name = segment.store
        config = self._configs.get(name)
        if config is None:
            raise InvalidRequest(
                f"segment {segment.segment_id.id} of {segment.partition.topic} is in the store "
                f"{name!r}: give its address by the option strandline.store.{name}",
                field="strandline.store",
            )
        try:
            reads = open_blocking(
                config,
                wait=ambient.wait,
                monotonic=ambient.monotonic,
                random_fraction=ambient.random_fraction,
            )
        except NotFound as error:  # readers would take it for a segment that retention deleted
            raise RetryLater(str(error)) from None
        return OpenStore(config, reads, ObjectStream(config, readers=self._readers))
