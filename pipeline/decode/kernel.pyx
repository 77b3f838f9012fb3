# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Writes the records of a batch into the buffers of Arrow columns: one pass, no object a record.

Every read is checked against the end of its record. Malformed input is only reported as such here;
the pure reader then says what is wrong with it.
Varints and the order of a record's fields: see `kafka_formats/varints.py` and `record_batch.py`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #ifndef PYX_SHA256
    #define PYX_SHA256 ""
    #endif
    """
    const char *PYX_SHA256

SOURCE = PYX_SHA256.decode("ascii")

DONE, FULL, MALFORMED = 0, 1, 2

cdef enum:
    _DONE = 0
    _FULL = 1
    _MALFORMED = 2

# The buffers. `_AT` are 32-bit offsets into the data of the same name, `_SET` are bits, 0 for NULL.
cdef enum:
    KEY, KEY_AT, KEY_SET, VALUE, VALUE_AT, VALUE_SET, OFFSET, TIMESTAMP, TIMESTAMP_TYPE
    HEADERS_AT, HEADERS_SET, HEADER_KEY, HEADER_KEY_AT
    HEADER_VALUE, HEADER_VALUE_AT, HEADER_VALUE_SET
    BUFFERS

cdef enum:
    ROWS_AT_FIRST = 1024
    BYTES_AT_FIRST = 64 << 10
    SPARE_SHARE = 8  # what is allocated over what the last columns took: one part in so many

# Of a batch, as `kafka_formats/record_batch.py` has them: sizes of its header before and behind
# the length, and bits of its attributes.
cdef enum:
    LOG_OVERHEAD = 12
    RECORDS_FROM = 49
    LOG_APPEND_TIME = 0x08
    NOT_PLAIN = 0x07 | 0x10 | 0x20  # compressed, transactional, control

cdef enum:
    RECORDS_BYTES_MAX = 1 << 29  # replacing what is not UTF-8 makes three of one
    LARGE_BYTES = 64 << 10  # from here on other threads may run meanwhile

cdef int64_t MICROSECONDS_MAX = INT64_MAX // 1000

cdef struct Growing:
    uint8_t *data
    int64_t used  # only of those whose size does not follow from the number of rows
    int64_t capacity

cdef struct Field:
    const uint8_t *data
    int64_t length  # -1: NULL


cdef class Columns:
    """Collects the records of batches, one batch after the other; for one thread.

    `allocate(size)` gives a writable buffer with an `address`; `row_bytes` is what a row counts for
    beside its key, value and headers; `header_bytes` the same of a header. Columns are full from
    `bytes_full` bytes on, and at `rows_max` rows. The records of a batch have at most
    `records_bytes_max` bytes, so that 32-bit offsets hold whatever one adds to what is not full.
    """

    cdef object allocate
    cdef list owners
    cdef Growing buffers[BUFFERS]
    cdef int64_t wanted[BUFFERS]
    cdef bint key, value, offset, timestamp, timestamp_type, headers
    cdef int64_t first_offset, last_offset, bytes_full, rows_max, row_bytes, header_bytes
    cdef int64_t headers_max, records_bytes_max

    # the columns so far
    cdef int64_t rows, rows_capacity, bytes
    cdef int64_t header_rows, header_capacity
    cdef int64_t key_nulls, value_nulls, headers_nulls, header_value_nulls

    # the batch that is being read
    cdef Py_buffer source
    cdef bint held
    cdef const uint8_t *records
    cdef int64_t size, at, left, previous_delta, last_delta
    cdef int64_t base_offset, base_timestamp, fixed_timestamp
    cdef int32_t type

    def __cinit__(
        self, names, *, first_offset, last_offset, bytes_full, rows_max, row_bytes, header_bytes,
        headers_max, records_bytes_max, allocate,
    ):
        if records_bytes_max > RECORDS_BYTES_MAX:
            raise ValueError("32-bit offsets would not hold a batch of that many bytes")
        self.records_bytes_max = records_bytes_max
        self.allocate = allocate
        self.key = "key" in names
        self.value = "value" in names
        self.offset = "offset" in names
        self.timestamp = "timestamp" in names
        self.timestamp_type = "timestampType" in names
        self.headers = "headers" in names
        self.first_offset, self.last_offset = first_offset, last_offset
        self.bytes_full, self.rows_max = bytes_full, rows_max
        self.row_bytes, self.header_bytes = row_bytes, header_bytes
        self.headers_max = headers_max
        self.rows_capacity = ROWS_AT_FIRST
        self.header_capacity = ROWS_AT_FIRST
        for which in (KEY, VALUE, HEADER_KEY, HEADER_VALUE):
            self.wanted[which] = BYTES_AT_FIRST
        self._renew()

    def __dealloc__(self):
        self._release()

    def start(
        self, records, *, int64_t count, int64_t base_offset, int64_t last_delta,
        int64_t base_timestamp, append_time,
    ):
        """Take the decompressed records of a batch; `append_time` None: each has its own time."""
        if len(records) > self.records_bytes_max:
            raise ValueError(f"{len(records)} bytes of records are over the limit")
        self._hold(records)
        self.records, self.size = <const uint8_t *>self.source.buf, self.source.len
        self.at, self.left = 0, count
        self.previous_delta, self.last_delta = -1, last_delta
        self.base_offset, self.base_timestamp = base_offset, base_timestamp
        self.type = append_time is not None
        self.fixed_timestamp = append_time if append_time is not None else 0

    def run(self):
        """Go on with the batch: DONE with it, the columns are FULL, or it is MALFORMED."""
        cdef int status
        if not self.held:
            raise ValueError("no batch was started")
        with nogil:
            status = self._run()
        if status != _FULL:
            self._release()
        return status

    def plain(self, list headers, data, Py_ssize_t index, int64_t at, int64_t passed):
        """Read the batches from `headers[index]` on that need no decision of the decoder's.

        The first of them stands at `data[at]`, and `passed` is the offset before it. Returns a
        status and these three numbers again: DONE with all such batches and behind the last of
        them, or FULL or MALFORMED in the one they name. After FULL call it again with them.
        """
        cdef int status = _DONE
        cdef bint inside = self.held
        if not inside:
            self._hold(data)
        while inside or (index < len(headers) and self._open(headers[index], at, passed)):
            inside = False
            if self.size < LARGE_BYTES:
                status = self._run()
            else:
                with nogil:
                    status = self._run()
            if status != _DONE:
                break
            at += LOG_OVERHEAD + RECORDS_FROM + self.size
            passed = self.base_offset + self.last_delta
            index += 1
        if status != _FULL:
            self._release()
        return status, index, at, passed

    cdef bint _open(self, fields, int64_t at, int64_t passed) except -1:
        """Begin to read this batch, at `at` in the held data; False if it is compressed, or if the
        decoder has to decide about it.
        """
        cdef int64_t base_offset, length, attributes, last_delta, base_time, max_time, count
        (
            base_offset, length, _, _, _, attributes, last_delta, base_time, max_time, _, _, _,
            count,
        ) = fields
        if attributes & NOT_PLAIN or base_offset <= passed or base_offset > self.last_offset:
            return False
        if base_offset + last_delta < self.first_offset or length > self.records_bytes_max:
            return False
        if length < RECORDS_FROM or length > self.source.len - at - LOG_OVERHEAD:
            raise ValueError("the header is of a batch that is not here")
        self.records = <const uint8_t *>self.source.buf + at + LOG_OVERHEAD + RECORDS_FROM
        self.size = length - RECORDS_FROM
        self.at, self.left = 0, count
        self.previous_delta, self.last_delta = -1, last_delta
        self.base_offset, self.base_timestamp = base_offset, base_time
        self.type = (attributes & LOG_APPEND_TIME) != 0
        self.fixed_timestamp = max_time
        return True

    def collected(self):
        """Rows collected so far."""
        return self.rows

    def take(self):
        """Rows, headers, and the columns: for each its NULLs and buffers; then start anew.

        A buffer is (what `allocate` gave, bytes used); one that is not needed is None.
        """
        cdef int64_t rows = self.rows, inner = self.header_rows
        found = {}
        if self.key:
            found["key"] = self._binary(KEY, rows, self.key_nulls)
        if self.value:
            found["value"] = self._binary(VALUE, rows, self.value_nulls)
        if self.offset:
            found["offset"] = (0, (None, self._part(OFFSET, 8 * rows)))
        if self.timestamp:
            found["timestamp"] = (0, (None, self._part(TIMESTAMP, 8 * rows)))
        if self.timestamp_type:
            found["timestampType"] = (0, (None, self._part(TIMESTAMP_TYPE, 4 * rows)))
        if self.headers:
            nulls = self.headers_nulls
            bits = self._part(HEADERS_SET, (rows + 7) // 8) if nulls else None
            found["headers"] = (nulls, (bits, self._part(HEADERS_AT, 4 * (rows + 1))))
            found["header key"] = self._binary(HEADER_KEY, inner, 0)
            found["header value"] = self._binary(HEADER_VALUE, inner, self.header_value_nulls)
        self._plan()
        self._renew()
        return rows, inner, found

    cdef tuple _binary(self, int data, int64_t rows, int64_t nulls):
        """Its three buffers stand one behind another: data, offsets, bits."""
        bits = self._part(data + 2, (rows + 7) // 8) if nulls else None
        ends = self._part(data + 1, 4 * (rows + 1))
        return nulls, (bits, ends, self._part(data, self.buffers[data].used))

    cdef tuple _part(self, int which, int64_t used):
        return self.owners[which], used

    cdef void _plan(self):
        """Allocate next time what these columns took, and some more."""
        for which in (KEY, VALUE, HEADER_KEY, HEADER_VALUE):
            self.wanted[which] = max(
                BYTES_AT_FIRST,
                self.buffers[which].used + self.buffers[which].used // SPARE_SHARE,
            )
        self.rows_capacity = max(ROWS_AT_FIRST, self.rows + self.rows // SPARE_SHARE)
        self.header_capacity = max(
            ROWS_AT_FIRST, self.header_rows + self.header_rows // SPARE_SHARE
        )

    cdef int _renew(self) except -1:
        self.owners = [None] * BUFFERS
        memset(self.buffers, 0, sizeof(self.buffers))
        self.rows = self.bytes = self.header_rows = 0
        self.key_nulls = self.value_nulls = self.headers_nulls = self.header_value_nulls = 0
        if self.key:
            self._resize(KEY, self.wanted[KEY])
        if self.value:
            self._resize(VALUE, self.wanted[VALUE])
        self._resize_rows(self.rows_capacity)
        if self.headers:
            self._resize(HEADER_KEY, self.wanted[HEADER_KEY])
            self._resize(HEADER_VALUE, self.wanted[HEADER_VALUE])
            self._resize_headers(self.header_capacity)
        return 0

    cdef int _resize(self, int which, int64_t size) except -1:
        """Move a buffer into a larger one; the new part of a buffer of bits is zeros."""
        cdef Growing *buffer = &self.buffers[which]
        owner = self.allocate(size)
        cdef uint8_t *data = <uint8_t *><size_t>owner.address
        if buffer.capacity:
            memcpy(data, buffer.data, buffer.capacity)
        if which in (KEY_SET, VALUE_SET, HEADERS_SET, HEADER_VALUE_SET):
            memset(data + buffer.capacity, 0, size - buffer.capacity)
        elif not buffer.capacity and which in (
            KEY_AT, VALUE_AT, HEADERS_AT, HEADER_KEY_AT, HEADER_VALUE_AT
        ):
            (<int32_t *>data)[0] = 0
        buffer.data, buffer.capacity = data, size
        self.owners[which] = owner
        return 0

    cdef int _resize_rows(self, int64_t rows) except -1:
        if self.key:
            self._resize(KEY_AT, 4 * (rows + 1))
            self._resize(KEY_SET, (rows + 7) // 8)
        if self.value:
            self._resize(VALUE_AT, 4 * (rows + 1))
            self._resize(VALUE_SET, (rows + 7) // 8)
        if self.offset:
            self._resize(OFFSET, 8 * rows)
        if self.timestamp:
            self._resize(TIMESTAMP, 8 * rows)
        if self.timestamp_type:
            self._resize(TIMESTAMP_TYPE, 4 * rows)
        if self.headers:
            self._resize(HEADERS_AT, 4 * (rows + 1))
            self._resize(HEADERS_SET, (rows + 7) // 8)
        self.rows_capacity = rows
        return 0

    cdef int _resize_headers(self, int64_t rows) except -1:
        self._resize(HEADER_KEY_AT, 4 * (rows + 1))
        self._resize(HEADER_VALUE_AT, 4 * (rows + 1))
        self._resize(HEADER_VALUE_SET, (rows + 7) // 8)
        self.header_capacity = rows
        return 0

    cdef int _hold(self, data) except -1:
        self._release()
        PyObject_GetBuffer(data, &self.source, PyBUF_SIMPLE)
        self.held = True
        return 0

    cdef void _release(self):
        if self.held:
            PyBuffer_Release(&self.source)
            self.held = False

    cdef int _run(self) except -1 nogil:
        cdef const uint8_t *data = self.records
        cdef int64_t size = self.size
        cdef int64_t at = self.at, end, length, time_delta, delta, offset, time
        cdef Field key, value
        cdef int64_t headers
        while self.left > 0:
            if self.rows >= self.rows_max or self.bytes >= self.bytes_full:
                self.at = at
                return _FULL
            if not varint(data, size, &at, &length) or length < 0 or length > size - at:
                return _MALFORMED
            end = at + length
            at += 1  # the record's attributes, unused
            if not varlong(data, end, &at, &time_delta) or not varint(data, end, &at, &delta):
                return _MALFORMED
            if delta <= self.previous_delta or delta > self.last_delta:
                return _MALFORMED
            self.previous_delta = delta
            if not field(data, end, &at, &key) or not field(data, end, &at, &value):
                return _MALFORMED
            if not varint(data, end, &at, &headers) or headers < 0 or headers > end - at:
                return _MALFORMED
            if headers > self.headers_max:
                return _MALFORMED
            time = self.fixed_timestamp
            if not self.type:
                time = self.base_timestamp
                if time_delta > 0 and time > INT64_MAX - time_delta:
                    return _MALFORMED
                if time_delta < 0 and time < INT64_MIN - time_delta:
                    return _MALFORMED
                time += time_delta
            self.left -= 1
            offset = self.base_offset + delta
            if self.first_offset <= offset <= self.last_offset:
                if not self._add(&key, &value, offset, time):
                    return _MALFORMED
                if not self._headers(data, end, &at, headers, self.headers):
                    return _MALFORMED
                self.rows += 1
            elif not self._headers(data, end, &at, headers, False):
                return _MALFORMED
            if at != end:
                return _MALFORMED
        return _DONE if at == size else _MALFORMED

    cdef int _add(self, Field *key, Field *value, int64_t offset, int64_t time) except -1 nogil:
        """A row without its headers; 0 if its time does not fit the column."""
        cdef int64_t row = self.rows
        if row >= self.rows_capacity:
            with gil:
                self._resize_rows(2 * self.rows_capacity)
        if self.key:
            self._put(KEY, row, key)
            self.key_nulls += key.length < 0
        if self.value:
            self._put(VALUE, row, value)
            self.value_nulls += value.length < 0
        if self.offset:
            (<int64_t *>self.buffers[OFFSET].data)[row] = offset
        if self.timestamp:
            if time > MICROSECONDS_MAX or time < -MICROSECONDS_MAX:
                return 0
            (<int64_t *>self.buffers[TIMESTAMP].data)[row] = time * 1000
        if self.timestamp_type:
            (<int32_t *>self.buffers[TIMESTAMP_TYPE].data)[row] = self.type
        self.bytes += self.row_bytes
        return 1

    cdef int _put(self, int which, int64_t row, Field *field) except -1 nogil:
        """One value of a binary column; room for its offset and bit is there."""
        cdef Growing *buffer = &self.buffers[which]
        if field.length >= 0:
            if field.length > buffer.capacity - buffer.used:
                with gil:
                    self._resize(which, 2 * buffer.capacity + field.length)
            memcpy(buffer.data + buffer.used, field.data, field.length)
            buffer.used += field.length
            self.bytes += field.length
            self.buffers[which + 2].data[row >> 3] |= <uint8_t>(1 << (row & 7))
        (<int32_t *>self.buffers[which + 1].data)[row + 1] = <int32_t>buffer.used
        return 0

    cdef int _headers(
        self, const uint8_t *data, int64_t end, int64_t *at, int64_t count, bint keep
    ) except -1 nogil:
        """The headers of the row that is being added, or passed over; 0 if malformed."""
        cdef int64_t row = self.rows
        cdef Field key, value
        cdef int64_t _
        for _ in range(count):
            if not field(data, end, at, &key) or not field(data, end, at, &value):
                return 0
            if key.length < 0:
                return 0
            if keep:
                self._put_header(&key, &value)
        if keep:
            if count:
                self.buffers[HEADERS_SET].data[row >> 3] |= <uint8_t>(1 << (row & 7))
            else:
                self.headers_nulls += 1
            (<int32_t *>self.buffers[HEADERS_AT].data)[row + 1] = <int32_t>self.header_rows
        return 1

    cdef int _put_header(self, Field *key, Field *value) except -1 nogil:
        if self.header_rows >= self.header_capacity:
            with gil:
                self._resize_headers(2 * self.header_capacity)
        if is_ascii(key):
            self._put_header_key(key)
        else:
            with gil:
                self._put_text(key)
        self._put(HEADER_VALUE, self.header_rows, value)
        self.header_value_nulls += value.length < 0
        self.header_rows += 1
        self.bytes += self.header_bytes
        return 0

    cdef int _put_header_key(self, Field *key) except -1 nogil:
        """Keys are never NULL, and so have no bits."""
        cdef Growing *buffer = &self.buffers[HEADER_KEY]
        if key.length > buffer.capacity - buffer.used:
            with gil:
                self._resize(HEADER_KEY, 2 * buffer.capacity + key.length)
        memcpy(buffer.data + buffer.used, key.data, key.length)
        buffer.used += key.length
        self.bytes += key.length
        (<int32_t *>self.buffers[HEADER_KEY_AT].data)[self.header_rows + 1] = <int32_t>buffer.used
        return 0

    cdef int _put_text(self, Field *key) except -1:
        """Malformed UTF-8 is replaced, as by Kafka's consumer."""
        cdef bytes text = key.data[:key.length].decode("utf-8", "replace").encode()
        cdef Field valid
        valid.data, valid.length = <const uint8_t *><const char *>text, len(text)
        return self._put_header_key(&valid)


cdef bint is_ascii(Field *text) noexcept nogil:
    cdef uint8_t seen = 0
    cdef int64_t at
    for at in range(text.length):
        seen |= text.data[at]
    return seen < 0x80


cdef inline bint field(
    const uint8_t *data, int64_t end, int64_t *at, Field *found
) noexcept nogil:
    """A length and as many bytes, all before `end`; False if they are not."""
    if not varint(data, end, at, &found.length):
        return False
    if found.length < 0:
        return found.length == -1
    if found.length > end - at[0]:
        return False
    found.data = data + at[0]
    at[0] += found.length
    return True


cdef inline bint varint(
    const uint8_t *data, int64_t end, int64_t *at, int64_t *found
) noexcept nogil:
    """A number of 32 bits; False if it does not end before `end` or does not fit."""
    cdef uint32_t raw
    cdef uint8_t byte
    cdef int shift
    if at[0] >= end:
        return False
    byte = data[at[0]]
    at[0] += 1
    raw = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if at[0] >= end or shift > 28:
            return False
        byte = data[at[0]]
        at[0] += 1
        if shift == 28 and byte > 0x0F:
            return False
        raw |= <uint32_t>(byte & 0x7F) << shift
        shift += 7
    found[0] = <int64_t><int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    return True


cdef inline bint varlong(
    const uint8_t *data, int64_t end, int64_t *at, int64_t *found
) noexcept nogil:
    """A number of 64 bits; False if it does not end before `end` or does not fit."""
    cdef uint64_t raw
    cdef uint8_t byte
    cdef int shift
    if at[0] >= end:
        return False
    byte = data[at[0]]
    at[0] += 1
    raw = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if at[0] >= end or shift > 63:
            return False
        byte = data[at[0]]
        at[0] += 1
        if shift == 63 and byte > 1:
            return False
        raw |= <uint64_t>(byte & 0x7F) << shift
        shift += 7
    found[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return True
