"""Feeds the transactional and control batches of a log to the check that copies use as well."""

from __future__ import annotations

from kafka_formats.crc32c import Buffer
from kafka_formats.record_batch import (
    ControlType,
    control_record_type,
    iter_records,
    parse_header,
)
from rlm.data_plane.transaction_check import TransactionCheck


def tell(check: TransactionCheck, data: Buffer, source: str, position: int) -> None:
    """Feed a verified batch of these two kinds to `check`; a batch with records may be only its
    header. CorruptData for a control batch that cannot be read.
    """
    header = parse_header(data, source=source, position=position)
    producer_id = header.producer_id
    if not header.is_control:
        check.has_batch(producer_id, header.base_offset)
        return
    record = next(iter_records(data, source=source, position=position), None)
    if record is None:
        check.marker_gone(producer_id, header.last_offset)
        return
    type_ = control_record_type(record, source=source, position=position)
    if type_ in (ControlType.ABORT, ControlType.COMMIT):
        check.ends(producer_id, record.offset, aborted=type_ == ControlType.ABORT)
