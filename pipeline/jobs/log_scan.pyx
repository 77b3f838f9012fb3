# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Checks a whole `.log` in one pass, each of its bytes summed once.

Errors are only reported as such here; `LogCheck` then reads the log again and says what is wrong.
The rules are its own, those of `rlm/data_plane/index_check.py` and, for headers, of
`kafka_formats/record_batch.py`.

One running CRC32C goes over the log. That of any part, chunk or batch, is made of the two at its
ends: crc(AB) = crc(A followed by |B| zeros) ^ crc(B), see `kafka_formats/crc32c.py`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kafka_formats.crc32c import crc32c

cdef extern from *:
    """
    #ifndef PYX_SHA256
    #define PYX_SHA256 ""
    #endif
    """
    const char *PYX_SHA256

cdef extern from "Python.h":
    int PyBUF_READ

SOURCE = PYX_SHA256.decode("ascii")

# Of a batch, as `kafka_formats/record_batch.py` has them.
cdef enum:
    LOG_OVERHEAD = 12
    CRC_FROM = 21
    HEADER_BYTES = 61
    MAGIC = 2
    CODEC_MASK = 0x07
    CODEC_MAX = 4
    TRANSACTIONAL = 0x10
    CONTROL = 0x20

cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    CONTROL_BYTES_MAX = 1 << 16  # a marker has 78: more of them is for the other reader

# What ends where the next cut is.
cdef enum:
    UNSUMMED  # the fields in front of a batch's CRC, which it is not taken over
    HEADER
    BATCH

cdef uint32_t POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed
cdef enum:
    POWERS = 63

# ZEROS[p][i][v]: what 2**p zero bytes make of a checksum that is v << 4*i.
cdef uint32_t ZEROS[POWERS][8][16]


cdef uint32_t with_zeros(uint32_t crc, int power) noexcept:
    cdef uint32_t result = 0
    cdef int nibble
    for nibble in range(8):
        result ^= ZEROS[power][nibble][crc >> 4 * nibble & 15]
    return result


cdef void fill_zeros() noexcept:
    cdef uint32_t columns[32]
    cdef int bit, power, nibble, value, _
    for bit in range(32):
        columns[bit] = <uint32_t>1 << bit
        for _ in range(8):
            columns[bit] = columns[bit] >> 1 ^ (POLYNOMIAL if columns[bit] & 1 else 0)
    for power in range(POWERS):
        for nibble in range(8):
            for value in range(16):
                ZEROS[power][nibble][value] = 0
                for bit in range(4):
                    if value >> bit & 1:
                        ZEROS[power][nibble][value] ^= columns[4 * nibble + bit]
        for bit in range(32):
            columns[bit] = with_zeros(columns[bit], power)


fill_zeros()


cdef uint32_t crc_between(uint32_t before, uint32_t behind, int64_t size) noexcept:
    """The checksum of `size` bytes, from the running ones in front of them and behind them."""
    cdef int power = 0
    while size:
        if size & 1:
            before = with_zeros(before, power)
        size >>= 1
        power += 1
    return before ^ behind


cdef inline int32_t int32_at(const uint8_t *at) noexcept:
    return <int32_t>(
        <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | <uint32_t>at[3]
    )


cdef inline int64_t int64_at(const uint8_t *at) noexcept:
    return <int64_t>(<uint64_t><uint32_t>int32_at(at) << 32 | <uint32_t>int32_at(at + 4))


cdef class LogScan:
    """Takes a log's bytes in order, in pieces of any size. For one thread.

    `chunk_crcs`: an array of uint32, the CRC32C of each `chunk_bytes` of the log; without any only
    batches are summed. `crc`: that of the whole log, None where it is not known. `epochs`: an array
    of int64, the leader epoch and the start offset of each entry of the lineage, or none.
    `offset_index` and `time_index` as they are stored.
    """

    cdef int64_t start_offset, first_offset, end_offset, log_bytes
    cdef int64_t position, cut
    cdef uint32_t crc
    cdef object expected_crc

    cdef const uint32_t[::1] chunk_crcs
    cdef int64_t chunk_bytes, chunk_end
    cdef Py_ssize_t chunk
    cdef uint32_t crc_at_chunk

    cdef const int64_t[::1] epochs
    cdef Py_ssize_t next_epoch
    cdef int64_t epoch, epoch_end

    cdef const uint8_t[::1] offset_index, time_index
    cdef Py_ssize_t offset_entry, time_entry
    cdef int64_t entry_offset, entry_time, entry_time_offset  # of the last entry, offsets relative
    cdef int64_t awaited_offset  # of the last entry, until a batch ends there; -1

    cdef int part
    cdef uint8_t header[HEADER_BYTES]
    cdef int header_bytes
    cdef int64_t batch_at, next_offset, max_timestamp_ms
    cdef uint32_t crc_at_body
    cdef bytearray control
    cdef list found

    def __cinit__(
        self, *, start_offset, first_offset, end_offset, log_bytes, crc, chunk_bytes,
        const uint32_t[::1] chunk_crcs, const int64_t[::1] epochs,
        const uint8_t[::1] offset_index, const uint8_t[::1] time_index,
    ):
        self.start_offset, self.first_offset = start_offset, first_offset
        self.end_offset, self.log_bytes = end_offset, log_bytes
        self.next_offset, self.max_timestamp_ms = start_offset, -1
        self.expected_crc = crc
        if chunk_bytes <= 0:
            raise ValueError(f"chunks of {chunk_bytes} bytes")
        self.chunk_crcs, self.chunk_bytes = chunk_crcs, chunk_bytes
        self.chunk_end = min(self.chunk_bytes, self.log_bytes) if len(chunk_crcs) else INT64_MAX
        self.epochs = epochs
        self._enter_epoch()
        self.offset_index, self.time_index = offset_index, time_index
        self.entry_offset = self.entry_time = self.entry_time_offset = self.awaited_offset = -1
        self.part, self.cut = UNSUMMED, CRC_FROM
        self.found = []
        self.control = None

    @property
    def max_timestamp(self):
        """The largest timestamp of all batches so far, ms; -1 without any."""
        return self.max_timestamp_ms

    def take(self, piece):
        """None if something is wrong, which ends the scan. Else the transactional and control
        batches that end in this piece: the header's bytes, or all of a control batch.
        """
        cdef Py_buffer source
        self.found = []
        PyObject_GetBuffer(piece, &source, PyBUF_SIMPLE)
        try:
            right = self._take(<const uint8_t *>source.buf, source.len)
        finally:
            PyBuffer_Release(&source)
        return self.found if right else None

    def finish(self):
        """True if the log, at its end now, is right, and both indexes fit it wholly."""
        return (
            self.position == self.log_bytes
            and self.part == UNSUMMED and not self.header_bytes
            and (self.expected_crc is None or self.expected_crc == self.crc)
            and self.chunk == len(self.chunk_crcs)
            and self.awaited_offset < 0
            and self.offset_entry * OFFSET_ENTRY_BYTES == len(self.offset_index)
            and self.time_entry * TIME_ENTRY_BYTES == len(self.time_index)
            and self.entry_time in (-1, self.max_timestamp_ms)
        )

    cdef bint _take(self, const uint8_t *data, int64_t size) except -1:
        cdef int64_t until, count
        cdef const uint8_t *end = data + size
        if size > self.log_bytes - self.position:
            return False
        while data < end:
            until = min(self.position + (end - data), self.cut, self.chunk_end)
            count = until - self.position
            self.crc = crc32c(PyMemoryView_FromMemory(<char *>data, count, PyBUF_READ), self.crc)
            if self.part != BATCH:
                memcpy(self.header + self.header_bytes, data, count)
                self.header_bytes += count
            elif self.control is not None:
                self.control += data[:count]
            data += count
            self.position = until
            if until == self.chunk_end and not self._chunk_ends():
                return False
            if until == self.cut and not self._part_ends():
                return False
        return True

    cdef bint _chunk_ends(self) except -1:
        cdef int64_t size = self.chunk_end - self.chunk * self.chunk_bytes
        if self.chunk == len(self.chunk_crcs):
            return False
        if crc_between(self.crc_at_chunk, self.crc, size) != self.chunk_crcs[self.chunk]:
            return False
        self.chunk += 1
        self.crc_at_chunk = self.crc
        if self.chunk_end == self.log_bytes:
            self.chunk_end = INT64_MAX
        else:
            self.chunk_end = min(self.chunk_end + self.chunk_bytes, self.log_bytes)
        return True

    cdef bint _part_ends(self) except -1:
        if self.part == UNSUMMED:
            self.crc_at_body = self.crc
            self.part, self.cut = HEADER, self.batch_at + HEADER_BYTES
            return True
        if self.part == HEADER:
            if not self._header_is_right():
                return False
            self.part, self.cut = BATCH, self.batch_at + LOG_OVERHEAD + int32_at(self.header + 8)
            if self.cut > self.position:
                return True
        return self._batch_ends()

    cdef bint _header_is_right(self) except -1:
        cdef const uint8_t *header = self.header
        cdef int64_t base_offset = int64_at(header)
        cdef int64_t length = int32_at(header + 8)
        cdef int attributes = header[21] << 8 | header[22]
        cdef int64_t delta = int32_at(header + 23)
        if (
            header[16] != MAGIC
            or length < HEADER_BYTES - LOG_OVERHEAD
            or length > self.log_bytes - self.batch_at - LOG_OVERHEAD
            or base_offset < 0
            or delta < 0 or delta >= INT64_MAX - base_offset  # the next offset is one, too
            or int32_at(header + 57) < 0
            or attributes & CODEC_MASK > CODEC_MAX
        ):
            return False
        if attributes & CONTROL:
            if length > CONTROL_BYTES_MAX:
                return False
            self.control = bytearray(header[:HEADER_BYTES])
        return True

    cdef bint _batch_ends(self) except -1:
        cdef const uint8_t *header = self.header
        cdef int64_t base_offset = int64_at(header)
        cdef int64_t last_offset = base_offset + int32_at(header + 23)
        cdef int64_t timestamp = int64_at(header + 35)
        cdef int64_t body = self.position - self.batch_at - CRC_FROM
        if crc_between(self.crc_at_body, self.crc, body) != <uint32_t>int32_at(header + 17):
            return False
        if base_offset < self.next_offset or last_offset > self.end_offset:
            return False
        if not self._epoch_is_right(base_offset, last_offset, int32_at(header + 12)):
            return False
        if not self._offset_index_is_right(base_offset, last_offset):
            return False
        if not self._time_index_is_right(base_offset, last_offset, timestamp):
            return False
        if timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp
        if self.control is not None:
            self.found.append(bytes(self.control))
            self.control = None
        elif header[22] & TRANSACTIONAL:
            self.found.append(header[:HEADER_BYTES])
        self.next_offset = last_offset + 1
        self.batch_at = self.position
        self.header_bytes = 0
        self.part, self.cut = UNSUMMED, self.position + CRC_FROM
        return True

    cdef void _enter_epoch(self) noexcept:
        """The lineage's epoch of the offsets up to `epoch_end` (exclusive)."""
        if self.next_epoch < len(self.epochs):
            self.epoch = self.epochs[self.next_epoch]
            self.next_epoch += 2
        self.epoch_end = INT64_MAX
        if self.next_epoch < len(self.epochs):
            self.epoch_end = self.epochs[self.next_epoch + 1]

    cdef bint _epoch_is_right(self, int64_t base_offset, int64_t last_offset, int64_t epoch):
        if not len(self.epochs):
            return True
        while self.epoch_end <= base_offset and self.next_epoch < len(self.epochs):
            self._enter_epoch()
        if epoch == self.epoch and last_offset < self.epoch_end:
            return True
        # Below the log start offset the lineage may have lost its head.
        return epoch < self.epoch and last_offset < self.first_offset

    cdef bint _offset_index_is_right(self, int64_t base_offset, int64_t last_offset):
        """An entry names the start of a batch, and the last offset of what was appended there."""
        if not self._entry_is_right(base_offset):
            return False
        if 0 <= self.awaited_offset <= last_offset - self.start_offset:
            if self.awaited_offset != last_offset - self.start_offset:
                return False
            self.awaited_offset = -1
        return True

    cdef bint _entry_is_right(self, int64_t base_offset):
        cdef Py_ssize_t at = self.offset_entry * OFFSET_ENTRY_BYTES
        cdef int64_t relative, position
        if at + OFFSET_ENTRY_BYTES > len(self.offset_index):
            return True
        relative = int32_at(&self.offset_index[at])
        position = int32_at(&self.offset_index[at + 4])
        if position > self.batch_at:
            return True
        if (
            position != self.batch_at
            or position == 0  # with the offset 0 it would be an unused entry
            or relative < base_offset - self.start_offset
            or relative <= self.entry_offset
            or self.awaited_offset >= 0
        ):
            return False
        self.entry_offset = self.awaited_offset = relative
        self.offset_entry += 1
        return True

    cdef bint _time_index_is_right(
        self, int64_t base_offset, int64_t last_offset, int64_t timestamp
    ):
        """An entry has the largest timestamp of the batch that its offset is in, and all before are
        smaller.
        """
        cdef Py_ssize_t at = self.time_entry * TIME_ENTRY_BYTES
        cdef int64_t time, relative
        while at + TIME_ENTRY_BYTES <= len(self.time_index):
            time = int64_at(&self.time_index[at])
            relative = int32_at(&self.time_index[at + 8])
            if relative > last_offset - self.start_offset:
                return True
            if (
                time <= self.max_timestamp_ms
                or time != timestamp
                or relative < base_offset - self.start_offset
                or time <= self.entry_time
                or relative < 0
                or relative < self.entry_time_offset
                or (time == 0 and relative == 0)  # perhaps an unused entry
            ):
                return False
            self.entry_time, self.entry_time_offset = time, relative
            self.time_entry += 1
            at += TIME_ENTRY_BYTES
        return True
