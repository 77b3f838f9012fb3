"""Asks this node's own broker for leadership, last stable offsets and topic configs.

All requests but one kind use one connection to that broker. A broker that cannot be asked is an
answer (`NoAnswer`), never an exception in the caller's loop. The answers of a broker of a different
cluster, or of a different broker of this one, are never used.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from kafka_client import broker_requests
from kafka_client.broker_requests import BrokerError, FoundOffset, TopicPartition
from kafka_client.connection import RESPONSE_BYTES_MAX, AnswerTooLargeError, Connection, Endpoint
from kafka_client.sasl import SaslCredentials
from kafka_client.topic_id_requests import can_ask_topic_ids, topic_ids, unknown_topic_ids
from kafka_formats.errors import Refused, RetryLater, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from rlm.leadership.broker_answers import (
    Answered,
    copied_of,
    epoch_at,
    is_later,
    offset_of,
    topic_config_of,
    topic_id_of,
)
from rlm.leadership.leadership import (
    BrokerWord,
    Leads,
    LocalLogStart,
    NoAnswer,
    NotLeading,
    TopicConfig,
)
from rlm.leadership.unseen_disk import EpochAt

PARTITIONS_PER_REQUEST_MAX = 2_000
TOPIC_IDS_PER_REQUEST_MAX = 1_000
ASKED_FOR_ALL = 2
"""The number of brokers asked for all ids; further ones are asked only for those still unknown."""
RECONNECT_BASE_S = 0.2
RECONNECT_MAX_S = 10.0
TOPIC_CONFIG_KEYS = ("cleanup.policy", "retention.ms", "retention.bytes", "remote.storage.enable")

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Name = TypeVar("Name")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class BrokerConnectionSettings:
    """This node's own broker, and how to connect to it. An empty `host`: `move_to` will set it.

    `security_protocol` is Kafka's. `ssl_ca_file` None trusts the machine's authorities. Every
    connection reads the files anew, so that certificates can be replaced.
    """

    host: str
    port: int
    node_id: int
    kafka_cluster_id: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "SCRAM-SHA-512"
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    ssl_ca_file: Path | None = None
    ssl_certificate_file: Path | None = None
    ssl_key_file: Path | None = None
    request_timeout_s: float = 10.0

    def sasl(self) -> SaslCredentials | None:
        """The credentials; None if the protocol has none. InvalidRequest if they are unusable."""
        if not self.security_protocol.startswith("SASL_"):
            return None
        return SaslCredentials(self.sasl_mechanism, self.sasl_username, self.sasl_password)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None if the protocol has none. Reads files. Refused if they are
        unusable.
        """
        if self.security_protocol not in ("SSL", "SASL_SSL"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_file)
            if self.ssl_certificate_file is not None:
                # The empty password makes an encrypted key an error; else OpenSSL would prompt.
                context.load_cert_chain(self.ssl_certificate_file, self.ssl_key_file, "")
        except OSError as error:
            files = (self.ssl_ca_file, self.ssl_certificate_file, self.ssl_key_file)
            named = ", ".join(str(path) for path in files if path is not None)
            raise Refused(
                f"cannot use the certificates or key in {named}: {error}; they are PEM files, "
                "certificate and key belong together, and the key must not be encrypted"
            ) from error
        return context


@dataclass(frozen=True, slots=True)
class TooLarge(NoAnswer):
    """The answer is larger than the limit: ask for less at once."""


class BrokerView:
    """The view of this node's broker, one per node. It connects when first asked, and again (with
    back-off) after a loss.
    """

    def __init__(
        self,
        settings: BrokerConnectionSettings,
        *,
        monotonic: Callable[[], float],
        random_fraction: Callable[[], float],
        new_nonce: Callable[[], str],
    ) -> None:
        """`new_nonce` returns unguessable printable characters, for SCRAM."""
        settings.sasl()  # unusable credentials are refused now
        self._settings = settings
        self._monotonic = monotonic
        self._random_fraction = random_fraction
        self._new_nonce = new_nonce
        self._one_at_a_time = asyncio.Lock()
        self._connection: Connection | None = None
        self._failures = 0
        self._next_attempt_at = 0.0
        self._last_failure = ""

    @property
    def node_id(self) -> int:
        """The id of this node's broker."""
        return self._settings.node_id

    async def check(self) -> None:
        """Connect now, even during a back-off.

        Refused: the broker belongs to a different cluster, has a different node id, or rejects the
        login. RetryLater: it cannot be reached.
        """
        async with self._one_at_a_time:
            await self._open()

    def another(self) -> BrokerView:
        """Make a view of the same broker with its own connection, for a different event loop."""
        return BrokerView(
            self._settings,
            monotonic=self._monotonic,
            random_fraction=self._random_fraction,
            new_nonce=self._new_nonce,
        )

    def move_to(self, address: str) -> None:
        """Use this `host:port` for the broker from now on. Its identity is checked as before. A
        text that is no address changes nothing.
        """
        host, _, port = address.partition(",")[0].rpartition(":")
        if not host or not (port.isascii() and port.isdecimal()):
            return
        moved = replace(self._settings, host=host.strip("[]"), port=int(port))
        if moved == self._settings:
            return
        logger.info("the broker's plug-in reports its address: %r, port %d", host, moved.port)
        self._settings, self._next_attempt_at = moved, 0.0
        if self._connection is not None:
            self._connection.abort()

    async def leadership(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, BrokerWord]:
        """The leadership of each (topic, partition), by one ListOffsets(latest, read_committed)."""
        found = await self._offsets(
            partitions, broker_requests.LATEST, broker_requests.READ_COMMITTED, read=offset_of
        )
        return {
            partition: Leads(answer.leader_epoch, answer.offset)
            if isinstance(answer, FoundOffset)
            else answer
            for partition, answer in found.items()
        }

    async def local_log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LocalLogStart | NotLeading | NoAnswer]:
        """The first offset on the broker's disk of each (topic, partition) that it leads."""
        found = await self._offsets(
            partitions,
            broker_requests.EARLIEST_LOCAL,
            broker_requests.READ_UNCOMMITTED,
            read=offset_of,
        )
        return {
            partition: LocalLogStart(answer.offset, answer.leader_epoch)
            if isinstance(answer, FoundOffset)
            else answer
            for partition, answer in found.items()
        }

    async def log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, EpochAt | NotLeading | NoAnswer]:
        """The log start of each (topic, partition) that the broker leads, its tier included, and
        the leader epoch of that offset.
        """
        asked = broker_requests.EARLIEST, broker_requests.READ_UNCOMMITTED
        return await self._offsets(partitions, *asked, read=epoch_at)

    async def highest_tiered(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | NotLeading | NoAnswer]:
        """The highest offset that the broker counts as copied, if it leads; -1: none (KIP-1005)."""
        asked = broker_requests.LATEST_TIERED, broker_requests.READ_UNCOMMITTED
        return await self._offsets(partitions, *asked, read=copied_of)

    async def epoch_ends(
        self, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochAt | NotLeading | NoAnswer]:
        """Ask for the ends of epochs. For each (present epoch, epoch): the largest epoch up to the
        latter, inclusive, and the offset where the next one begins.
        """
        answers: dict[TopicPartition, EpochAt | NotLeading | NoAnswer] = {}
        left = iter(asked)
        while some := tuple(islice(left, PARTITIONS_PER_REQUEST_MAX)):
            question = {each: asked[each] for each in some}
            found = await self.ask(partial(broker_requests.epoch_ends, asked=question))
            if isinstance(found, NoAnswer):
                answers |= dict.fromkeys(some, found)
            else:
                answers |= {each: epoch_at(each, found.get(each)) for each in some}
        return answers

    async def knows_later_epoch(
        self, partition: TopicPartition, leader_epoch: int
    ) -> bool | NoAnswer:
        """True if its replica leads, or follows a leader, at a later epoch. Asked for the end of
        that epoch as of the same one, a follower answers an error that tells.
        """
        question = {partition: (leader_epoch, leader_epoch)}
        found = await self.ask(partial(broker_requests.epoch_ends, asked=question))
        return found if isinstance(found, NoAnswer) else is_later(partition, found.get(partition))

    async def knows_topic(self, topic_id: Uuid) -> bool | NoAnswer:
        """True if the broker's metadata has this topic id; False if not, or not any more."""
        unknown = await self.ask(partial(unknown_topic_ids, ids=(topic_id,)))
        return unknown if isinstance(unknown, NoAnswer) else topic_id not in unknown

    async def topic_configs(self, topics: Sequence[str]) -> dict[str, TopicConfig | NoAnswer]:
        """The effective configs of each topic, which every broker knows."""

        async def ask(connection: Connection) -> dict[str, dict[str, str] | BrokerError]:
            return await broker_requests.topic_configs(connection, topics, TOPIC_CONFIG_KEYS)

        found = await self.ask(ask) if topics else {}
        if isinstance(found, NoAnswer):
            return dict.fromkeys(topics, found)
        return {topic: topic_config_of(topic, found.get(topic)) for topic in topics}

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, Uuid | NoAnswer]:
        """The id by which the broker knows each topic; empty if it does not support topic ids."""
        found: dict[str, Uuid | NoAnswer] = {}
        parts = _parts(topics)
        while parts:
            some = parts.pop()
            answers = await self.ask(partial(topic_ids, topics=some))
            if isinstance(answers, TooLarge) and len(some) > 1:
                parts += _halves(some)
            elif isinstance(answers, TooLarge):
                found[some[0]] = NoAnswer(
                    f"the broker's answer about {some[0]} alone has more than {RESPONSE_BYTES_MAX} "
                    "bytes: it has too many partitions to be tiered; name it in topics.exclude"
                )
            elif isinstance(answers, NoAnswer):
                found |= dict.fromkeys(some, answers)
            elif answers is not None:
                found |= {topic: topic_id_of(topic, answers.get(topic)) for topic in some}
        return found

    async def unknown_topic_ids(self, ids: Sequence[Uuid]) -> dict[int, frozenset[Uuid]] | NoAnswer:
        """The ids of `ids` that each live broker does not know, by its node id. A broker that was
        down may lack topics, so all brokers are asked, over their own connections, as long as an id
        is unknown to those before. NoAnswer: one of them cannot be asked.
        """
        cluster = await self.ask(broker_requests.describe_cluster)
        if isinstance(cluster, NoAnswer):
            return cluster
        answers: dict[int, frozenset[Uuid]] = {}
        unknown = frozenset(ids)
        for node_id, (host, port) in sorted(cluster.brokers.items()):
            if len(answers) >= ASKED_FOR_ALL:
                ids = sorted(unknown)
            if not ids:
                break
            try:
                answers[node_id] = await self._unknown_to(node_id, host, port, ids)
            except StrandlineError as error:
                return NoAnswer(f"broker {node_id} at {host}:{port} cannot be asked: {error}")
            unknown &= answers[node_id]
        return answers

    async def _unknown_to(
        self, node_id: int, host: str, port: int, ids: Sequence[Uuid]
    ) -> frozenset[Uuid]:
        connection = await self.connect_to(node_id, host, port)
        try:
            if not can_ask_topic_ids(connection):
                raise Refused("it does not answer by topic id: Kafka 3.1 and newer do")
            unknown: frozenset[Uuid] = frozenset()
            parts = _parts(ids)
            while parts:
                some = parts.pop()
                try:
                    unknown |= await unknown_topic_ids(connection, some)
                except AnswerTooLargeError:
                    # The answer for an unknown id is short, so a single id that fails is known.
                    parts += _halves(some)
                    connection = await self.connect_to(node_id, host, port)
            return unknown
        finally:
            connection.abort()

    async def close(self) -> None:
        async with self._one_at_a_time:
            if self._connection is not None:
                await self._connection.close()
                self._connection = None

    async def _offsets(
        self,
        partitions: Sequence[TopicPartition],
        timestamp: int,
        isolation_level: int,
        *,
        read: Callable[[TopicPartition, Answered], Found | NotLeading | NoAnswer],
    ) -> dict[TopicPartition, Found | NotLeading | NoAnswer]:
        answers: dict[TopicPartition, Found | NotLeading | NoAnswer] = {}
        left = iter(partitions)
        while asked := tuple(islice(left, PARTITIONS_PER_REQUEST_MAX)):

            async def ask(
                connection: Connection, asked: tuple[TopicPartition, ...] = asked
            ) -> dict[TopicPartition, FoundOffset | BrokerError]:
                return await broker_requests.list_offsets(
                    connection,
                    asked,
                    timestamp=_timestamp_for(connection, timestamp),
                    isolation_level=isolation_level,
                )

            found = await self.ask(ask)
            if isinstance(found, NoAnswer):
                answers |= dict.fromkeys(asked, found)
            else:
                answers |= {each: read(each, found.get(each)) for each in asked}
        return answers

    async def ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer | NoAnswer:
        """The answer over the open connection, or over a new one if that was lost."""
        async with self._one_at_a_time:
            try:
                if self._connection is not None and not self._connection.closed:
                    try:
                        return await question(self._connection)
                    except RetryLater:
                        # Brokers close idle connections and expired logins: try a new one.
                        pass
                return await question(await self._open_unless_too_early())
            except AnswerTooLargeError as error:
                return TooLarge(f"this node's broker cannot be asked: {error}")
            except StrandlineError as error:
                return NoAnswer(f"this node's broker cannot be asked: {error}")

    async def _open_unless_too_early(self) -> Connection:
        wait_s = self._next_attempt_at - self._monotonic()
        if wait_s > 0:
            raise RetryLater(
                f"{self._last_failure}; next attempt in {wait_s:.1f} s",
                retry_after_ms=int(wait_s * 1_000),
            )
        try:
            connection = await self._open()
        except StrandlineError as error:
            self._back_off(error)
            raise
        self._failures = 0
        return connection

    async def _open(self) -> Connection:
        settings = self._settings
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        if not settings.host:
            raise RetryLater("the broker's plug-in has not announced the broker's address yet")
        self._connection = await self.connect_to(settings.node_id, settings.host, settings.port)
        return self._connection

    async def connect_to(
        self, node_id: int, host: str, port: int, *, response_bytes_max: int = RESPONSE_BYTES_MAX
    ) -> Connection:
        """A connection to this broker of the cluster; the caller closes it. Raises as
        `Connection.open`. Refused: the broker at the address is of a different cluster, or has a
        different node id.
        """
        connection = await self._connect(host, port, response_bytes_max)
        try:
            await self._check_identity(connection, node_id, (host, port))
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _connect(self, host: str, port: int, response_bytes_max: int) -> Connection:
        settings = self._settings
        endpoint = Endpoint(
            host,
            port,
            tls=await asyncio.to_thread(settings.tls),
            sasl=settings.sasl(),
            connect_deadline_s=settings.request_timeout_s,
            request_deadline_s=settings.request_timeout_s,
            response_bytes_max=response_bytes_max,
        )
        return await Connection.open(endpoint, new_nonce=self._new_nonce)

    async def _check_identity(
        self, connection: Connection, node_id: int, address: tuple[str, int]
    ) -> None:
        name, ours = f"the broker at {connection.name}", self._settings.kafka_cluster_id
        own = address == (self._settings.host, self._settings.port)
        cluster = await broker_requests.describe_cluster(connection)
        if cluster.cluster_id != ours:
            raise Refused(
                f"{name} belongs to Kafka cluster {cluster.cluster_id}, this node to {ours}"
                + ("; set kafka.broker to this node's own" if own else "")
            )
        error = await broker_requests.ask_if_node(connection, node_id)
        if error is None:
            return
        if error.name == "cluster_authorization_failed":
            # Without DescribeConfigs on the cluster the broker must advertise this address.
            known = cluster.brokers.get(node_id)
            if known != address:
                raise Refused(
                    f"cannot tell whether {name} is node {node_id}: allow this user "
                    "DescribeConfigs on the cluster, or set kafka.broker to the "
                    f"address that node advertises ({known and ':'.join(map(str, known))})"
                )
        elif error.name == "invalid_request":
            raise Refused(
                f"{name} is not node {node_id}"
                + ("; a node must ask its own broker only: set kafka.broker to that, not to a "
                   "load balancer" if own else "")
            )  # fmt: skip
        else:
            raise RetryLater(f"{name} answered {error.name}")

    def _back_off(self, error: StrandlineError) -> None:
        ceiling = min(RECONNECT_MAX_S, RECONNECT_BASE_S * 2 ** min(self._failures, 16))
        self._failures += 1
        self._last_failure = str(error)
        self._next_attempt_at = self._monotonic() + ceiling * (0.5 + self._random_fraction() / 2)


def _parts(names: Sequence[Name]) -> list[Sequence[Name]]:
    """The names in groups, one for each request."""
    at_once = TOPIC_IDS_PER_REQUEST_MAX
    return [names[start : start + at_once] for start in range(0, len(names), at_once)]


def _halves(names: Sequence[Name]) -> tuple[Sequence[Name], ...]:
    """The two halves of a group; none for a single name."""
    middle = len(names) // 2
    return (names[:middle], names[middle:]) if middle else ()


def _timestamp_for(connection: Connection, timestamp: int) -> int:
    """EARLIEST for EARLIEST_LOCAL if the broker does not know the latter: without tiering they are
    equal.
    """
    knows_it = broker_requests.can_ask_earliest_local(connection)
    if timestamp == broker_requests.EARLIEST_LOCAL and not knows_it:
        return broker_requests.EARLIEST
    return timestamp
