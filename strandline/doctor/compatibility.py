"""Search for the fewest `compatibility` values with which a store passes its probe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rsm_backends.probe import ProbeResult
from rsm_backends.store_config import Compatibility, StoreConfig
from strandline.doctor.finding import Finding

_TRIED: tuple[frozenset[Compatibility], ...] = (
    frozenset({"delete-md5"}),
    frozenset({"single-deletes"}),
    frozenset({"no-checksums"}),
    frozenset({"no-checksums", "single-deletes"}),
)
_MAY_NEED_WORDS = frozenset({"put", "head", "multipart", "delete"})

Probe = Callable[[StoreConfig], Awaitable[list[ProbeResult]]]


async def find_compatibility(
    config: StoreConfig, results: Sequence[ProbeResult], probe: Probe
) -> Finding | None:
    """A finding with the `compatibility` values to set; None if none is needed or none helps."""
    failed = {each.name for each in results if not each.ok}
    if config.kind != "s3" or not failed & _MAY_NEED_WORDS:
        return None
    for words in _TRIED:
        if words <= config.compatibility:
            continue
        found = await probe(replace(config, compatibility=words))
        if not {each.name for each in found if not each.ok} & _MAY_NEED_WORDS:
            told = ", ".join(f'"{word}"' for word in sorted(words))
            return Finding(
                f"store {config.name}: compatibility",
                False,
                "the store lacks a part of S3 that Strandline can do without: in "
                f"[stores.{config.name}] set compatibility = [{told}]",
            )
    return None
