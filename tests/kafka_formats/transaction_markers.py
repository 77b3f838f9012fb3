"""Values of transaction markers, as a broker writes them behind `control_key`.

Source: Kafka's EndTransactionMarker.
"""

from __future__ import annotations

import struct

_VALUE = struct.Struct(">hi")


def end_transaction_value(coordinator_epoch: int, version: int = 0) -> bytes:
    """The value of an ABORT or COMMIT marker."""
    return _VALUE.pack(version, coordinator_epoch)
