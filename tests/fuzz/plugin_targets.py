"""What a broker's plug-in sends. Seeds are the golden requests of the broker protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from kafka_formats.errors import InvalidRequest
from rlm.delegated import wire
from rlm.delegated.phase_bodies import decode_phase_asked
from tests.fuzz.engine import Target

_GOLDEN = Path(__file__).parents[1] / "golden" / "broker_protocol"

_DECODERS: dict[str, Callable[[bytes], object]] = {
    "announce": wire.decode_announcement,
    "ready": wire.decode_ready,
    "lookup": wire.decode_look_up,
    "highest": wire.decode_highest,
    "list": wire.decode_list,
    "add": wire.decode_row,
    "update": wire.decode_update,
    "delete-partition": wire.decode_delete_partition,
    "copy": wire.decode_copy,
    "fetch": wire.decode_fetch,
    "index": wire.decode_index,
    "phase": decode_phase_asked,
}


def _requests(call: str) -> list[bytes]:
    found = sorted({*_GOLDEN.glob(f"{call}.request.bin"), *_GOLDEN.glob(f"{call}-*.request.bin")})
    return [path.read_bytes() for path in found]


def plugin_targets() -> list[Target]:
    """A row for each call of the protocol."""
    return [
        Target(
            f"broker protocol, {call}",
            ("rlm.delegated.wire.BodyReader",),
            decode,
            partial(_requests, call),
            errors=(InvalidRequest,),
        )
        for call, decode in _DECODERS.items()
    ]
