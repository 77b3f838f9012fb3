"""One connection to the quorum's listener: answers are sent in the order of the requests.

It is an asyncio protocol instead of streams: a request costs no wake-up of a reading task.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, cast

from kafka_client.frame_check import FrameError
from kafka_formats.errors import RetryLater
from rlmm.wire.anonymous_share import AnonymousShare
from rlmm.wire.authorisation import is_loopback
from rlmm.wire.frames import REQUEST_HEAD, SIZE, Api
from rlmm.wire.sasl_server import SaslServer

log = logging.getLogger(__name__)

_REQUEST_BYTES_MIN = 8

COUNTED_BYTES = 256
"""The bytes of a request that count as one request: Kafka's tools send less at a time."""
TLS_PART_BYTES = 256 << 10
"""The bytes written at once to a connection with TLS, which also has them encrypted in memory."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Bounds of the quorum's listener. Those named anonymous apply to all clients but peers.

    The rest of a frame is awaited for `frame_deadline_s`, and for `write_deadline_s` that a client
    takes an answer; a connection without requests is kept for `idle_deadline_s`. A request not
    answered within `answer_deadline_s` ends the connection: for a Produce that is a time-out with
    unknown outcome, and one check a second is cheaper than a timer for each request.

    One anonymous connection may begin `anonymous_requests_per_turn_max` requests before the others
    have their turn, and `anonymous_requests_per_s` a second; all of them together
    `anonymous_requests_per_turn_of_all` in one turn of the event loop, and
    `anonymous_requests_per_s_max` a second, in addition to the `anonymous_requests_first` of each.
    A request counts once more for each `COUNTED_BYTES` of it, as a long one asks for much. Answers
    that clients have not taken use at most `anonymous_answer_bytes_max` over all connections;
    without room, reads wait. At most `consumer_waits_max` reads wait for records at once; further
    ones are answered empty. `request_bytes_setting` is the name of the setting for
    `request_bytes_max`, empty if there is none.
    """

    connections_max: int = 1000
    request_bytes_max: int = 16 << 20
    request_bytes_setting: str = ""
    requests_in_flight_max: int = 64
    anonymous_request_bytes_max: int = 16 << 10
    anonymous_requests_in_flight_max: int = 4
    anonymous_requests_per_turn_max: int = 8
    anonymous_requests_per_turn_of_all: int = 32
    anonymous_requests_per_s: int = 200
    anonymous_requests_per_s_max: int = 1000
    anonymous_requests_first: int = 8
    anonymous_answer_bytes_max: int = 32 << 20
    frame_deadline_s: int = 30
    write_deadline_s: int = 30
    answer_deadline_s: int = 60
    idle_deadline_s: int = 600
    tls_handshake_deadline_s: float = 10.0
    consumer_wait_max_ms: int = 5_000
    consumer_waits_max: int = 100
    consumer_bytes_max: int = 1 << 20


class DisconnectError(Exception):
    """The request is not answered: the connection ends, and a log line has the reason."""


@dataclass(slots=True, eq=False)
class Caller:
    """The client of a connection, as far as it is authenticated."""

    name: str
    sasl: SaslServer
    is_peer: bool = False


class Requests(Protocol):
    """The listener, in the view of its connections."""

    limits: ListenerLimits
    share: AnonymousShare

    def begin(self, caller: Caller, frame: bytes) -> bytes | Awaitable[bytes]:
        """The answer's frame, or an awaitable of it. Raises FrameError and DisconnectError."""

    def accepted(self, connection: ServerConnection) -> Caller | None:
        """Register a new connection; None if there is no room for it."""

    def ended(self, connection: ServerConnection) -> None: ...

    def refused(self, who: str, why: str) -> None:
        """Log the refusal, at a limited rate."""


@dataclass(slots=True, eq=False)
class _Slot:
    """A request's place in the order of the answers."""

    answer: bytes | None = None
    task: asyncio.Task[None] | None = None
    ticks: int = 0


class ServerConnection(asyncio.Protocol):
    """A connection, made by the listener."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._transport: asyncio.Transport | None = None
        self._caller: Caller | None = None
        self._partial = bytearray()
        self._slots: deque[_Slot] = deque()
        self._reading_paused = False
        self._writing_paused = False
        self._writing_due = False
        self._frame_ticks = 0
        self._write_ticks = 0
        self._turn_left = self._second_left = self._first_left = 0
        self._next_turn_due = False
        self._all_left: asyncio.Future[None] | None = None
        self.held_bytes = 0
        self.idle_ticks = 0

    @property
    def is_peer(self) -> bool:
        return self._caller is not None and self._caller.is_peer

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "not connected"
        return self._transport

    @property
    def is_encrypted(self) -> bool:
        return self.transport.get_extra_info("ssl_object") is not None

    @property
    def is_private(self) -> bool:
        """True if no third party can read it: it is encrypted, or does not leave the machine."""
        host = (self.transport.get_extra_info("peername") or ("",))[0]
        return self.is_encrypted or is_loopback(host)

    @property
    def name(self) -> str:
        peer = self.transport.get_extra_info("peername")
        return f"{peer[0]}:{peer[1]}" if peer else "an unknown client"

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not subclass asyncio's.
        transport = cast(asyncio.Transport, made)
        self._transport = transport
        limits = self._requests.limits
        self._turn_left = limits.anonymous_requests_per_turn_max
        self._second_left = limits.anonymous_requests_per_s
        self._first_left = limits.anonymous_requests_first
        self._caller = self._requests.accepted(self)
        if self._caller is None:
            transport.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._requests.ended(self)
        for slot in self._slots:
            if slot.task is not None:
                slot.task.cancel()
        self._slots.clear()
        self._partial.clear()
        self._hold(0)
        self._settle_all_left()

    def data_received(self, data: bytes) -> None:
        self.idle_ticks = 0
        if self._partial or self._busy:
            self._partial += data
            if self._busy:
                self._pause_reading()
                return
            if not self._complete(self._partial):
                return
            data = bytes(self._partial)
            self._partial.clear()
        self._frames(data)

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._write_ticks = 0
        self._settle_all_left()
        self._account()
        self._go_on()

    async def write_part(self, data: bytes) -> None:
        """Write a part of the only answer under way, and wait until the client's socket has taken
        it. RetryLater: the client has gone.
        """
        assert len(self._slots) == 1, "other answers are under way"
        if not self.is_encrypted:
            await self._write_out(data, high_bytes=0)
            return
        # A TLS transport counts bytes as written once it has passed them on, and pauses at its
        # limit: with a limit of 0 bytes it would pause for ever.
        for at in range(0, len(data), TLS_PART_BYTES):
            await self._write_out(data[at : at + TLS_PART_BYTES], high_bytes=1)

    async def _write_out(self, data: bytes, *, high_bytes: int) -> None:
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(high=high_bytes)
            self.transport.write(data)
        # `tick` ends the connection of a client that takes nothing.
        while self._writing_paused and not self.transport.is_closing():
            self._all_left = asyncio.get_running_loop().create_future()
            await self._all_left
        if self.transport.is_closing():
            raise RetryLater(f"{self.name} has gone")

    def leave_requests(self) -> bool:
        """Leave the client's next requests in its socket until the present one is answered. False:
        a part of them was read already.
        """
        self._pause_reading()
        return not self._partial

    @contextmanager
    def lend(self) -> Iterator[socket.socket]:
        """The client's socket, for a different process that writes the next part of the answer;
        call after `write_part`. If that fails, the connection ends.
        """
        own = self.transport.get_extra_info("socket")
        with socket.socket(fileno=os.dup(own.fileno())) as lent:
            try:
                yield lent
            except BaseException:
                with suppress(OSError):  # closing this socket would leave the borrower's copy open
                    lent.shutdown(socket.SHUT_RDWR)
                self.end(None)
                raise

    def _settle_all_left(self) -> None:
        if self._all_left is not None and not self._all_left.done():
            self._all_left.set_result(None)

    def end(self, why: str | None) -> None:
        """End the connection at once; with `why` None without a log line."""
        if not self.transport.is_closing():
            if why is not None:
                self._requests.refused(self.name, why)
            self.transport.abort()

    def tick(self) -> None:
        """Check the deadlines; called once a second."""
        limits = self._requests.limits
        self._second_left = limits.anonymous_requests_per_s
        self._account()
        self._go_on()
        self.idle_ticks += 1
        # Counted from the last whole request on.
        self._frame_ticks = self._frame_ticks + 1 if self._partial and not self._busy else 0
        self._write_ticks = self._write_ticks + 1 if self._writing_paused else 0
        if self._frame_ticks > limits.frame_deadline_s:
            self.end(
                f"sent a part of a request and not the rest within {limits.frame_deadline_s} s: "
                "check the network, and the program at that address"
            )
        elif self._oldest_ticks() > limits.answer_deadline_s:
            self.end(f"waited {limits.answer_deadline_s} s for an answer: is there a majority?")
        elif self._write_ticks > limits.write_deadline_s:
            self.end(f"did not take an answer within {limits.write_deadline_s} s")
        elif not self._slots and self.idle_ticks > limits.idle_deadline_s:
            self.end(None)

    def _oldest_ticks(self) -> int:
        for slot in self._slots:
            slot.ticks += 1
        return self._slots[0].ticks if self._slots else 0

    @property
    def _busy(self) -> bool:
        limits = self._requests.limits
        in_flight_max = (
            limits.requests_in_flight_max
            if self.is_peer
            else limits.anonymous_requests_in_flight_max
        )
        return self._writing_paused or len(self._slots) >= in_flight_max or self._has_had_its_share

    @property
    def _has_had_its_share(self) -> bool:
        """True if this client's share of the turn or second, or that of all clients, is used up.
        Its first requests do not count: as many as a login of a peer takes.
        """
        if self.is_peer:
            return False
        share = self._requests.share
        if share.turn_is_spent:
            self._call_next_turn()
            return True
        if self._turn_left <= 0 or self._second_left <= 0:
            return True
        return self._first_left <= 0 and share.is_spent

    def _size_at(self, data: bytes | bytearray, at: int) -> int:
        """The size that the frame at `at` announces. DisconnectError: not a valid size."""
        size: int = SIZE.unpack_from(data, at)[0]
        limits = self._requests.limits
        bytes_max = limits.request_bytes_max if self.is_peer else limits.anonymous_request_bytes_max
        if not _REQUEST_BYTES_MIN <= size <= bytes_max:
            setting = limits.request_bytes_setting if self.is_peer else ""
            raise DisconnectError(
                f"announced a request of {size} bytes, and {_REQUEST_BYTES_MIN} to {bytes_max} are "
                "accepted from it: is it a Kafka client, with the right security protocol?"
                + (f" If it is, {setting} may be too low" if setting else "")
            )
        return size

    def _complete(self, data: bytearray) -> bool:
        """True if a first frame is complete, or has a size to refuse."""
        if len(data) < SIZE.size:
            return False
        try:
            return len(data) - SIZE.size >= self._size_at(data, 0)
        except DisconnectError:
            return True

    def _frames(self, data: bytes) -> None:
        """Begin every whole request in `data`, keep the rest."""
        at, end = 0, len(data)
        try:
            while end - at >= SIZE.size and not self.transport.is_closing():
                if self._busy:
                    self._write_answers()  # answered requests are no longer in flight
                if self._busy:
                    self._pause_reading()
                    break
                frame_end = at + SIZE.size + self._size_at(data, at)
                if frame_end > end:
                    break
                self._begin(data[at + SIZE.size : frame_end])
                at = frame_end
        except DisconnectError as error:
            self.end(str(error))
            return
        except FrameError as error:
            self.end(_unreadable(data[at + SIZE.size : frame_end], error))
            return
        if at < end:
            self._partial += data[at:] if at else data
        self._write_answers()

    def _begin(self, frame: bytes) -> None:
        assert self._caller is not None
        self._frame_ticks = 0
        if not self.is_peer:
            self._count(1 + len(frame) // COUNTED_BYTES)
        begun = self._requests.begin(self._caller, frame)
        if isinstance(begun, bytes):
            self._slots.append(_Slot(begun))
            return
        slot = _Slot()
        self._slots.append(slot)
        slot.task = asyncio.get_running_loop().create_task(self._finish(slot, begun))

    def _count(self, requests: int) -> None:
        share, first = self._requests.share, min(self._first_left, requests)
        if not share.turn_has_begun:
            asyncio.get_running_loop().call_soon(share.next_turn)
        share.take_requests(requests, of_this_second=requests - first)
        self._first_left -= first
        self._second_left -= requests
        self._turn_left -= requests
        self._call_next_turn()

    def _call_next_turn(self) -> None:
        if not self._next_turn_due:
            self._next_turn_due = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._next_turn_due = False
        self._turn_left = self._requests.limits.anonymous_requests_per_turn_max
        self._go_on()

    def _account(self) -> None:
        """Count the bytes of answers that the client has not taken."""
        if self.is_peer or self.transport.is_closing():
            self._hold(0)
            return
        ready = sum(len(slot.answer) for slot in self._slots if slot.answer is not None)
        self._hold(ready + self.transport.get_write_buffer_size())

    def _hold(self, size_bytes: int) -> None:
        self._requests.share.held_bytes += size_bytes - self.held_bytes
        self.held_bytes = size_bytes

    async def _finish(self, slot: _Slot, work: Awaitable[bytes]) -> None:
        try:
            slot.answer = await work
        except DisconnectError as error:
            self.end(str(error))
        except RetryLater:
            self.end(None)  # this node stops, as its own log says: the client asks a different one
        except Exception:
            log.exception("a request of %s failed: report this", self.name)
            self.end(None)
        else:
            self._account()
            if len(self._slots) == 1:
                self._write_on()
            elif not self._writing_due:
                # A commit answers many requests in one turn of the loop: they are sent together.
                self._writing_due = True
                asyncio.get_running_loop().call_soon(self._write_on)

    def _write_on(self) -> None:
        self._writing_due = False
        self._write_answers()
        self._go_on()

    def _write_answers(self) -> None:
        """Write the finished answers at the head of the order together."""
        slots = self._slots
        ready = []
        while slots and (answer := slots[0].answer) is not None:
            slots.popleft()
            ready.append(answer)
        if ready and not self.transport.is_closing():
            self.transport.write(ready[0] if len(ready) == 1 else b"".join(ready))
            self._account()

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self.transport.is_closing():
            self._reading_paused = True
            self.transport.pause_reading()

    def _go_on(self) -> None:
        """Read on if there is room for more requests; those already read come first."""
        if not self._reading_paused or self._busy or self.transport.is_closing():
            return
        self._reading_paused = False
        self.transport.resume_reading()
        if self._partial:
            data = bytes(self._partial)
            self._partial.clear()
            self._frames(data)


def _unreadable(frame: bytes, error: FrameError) -> str:
    """The log line for a known API and version whose content is truncated or garbage."""
    api_key, version, _ = REQUEST_HEAD.unpack_from(frame)
    return (
        f"sent {Api(api_key).name} version {version} of {len(frame)} bytes that cannot be read "
        f"({error}): none of it was used, and its connection is ended. If it comes again, check "
        "the program at that address: it may not speak Kafka's protocol, or a proxy in between "
        "breaks connections"
    )
