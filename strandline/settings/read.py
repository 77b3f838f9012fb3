"""The settings of a read replica, the listener for Kafka consumers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rlmm.records.node_facts import ReadAddress
from strandline.settings.fields import (
    LOOPBACK_HOSTS,
    PatternList,
    PositiveInt,
    PositiveSeconds,
    RateLimit,
    Section,
)

_PORT_MAX = 65_535


Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
READABLE: frozenset[Mechanism] = frozenset({"PLAIN", "OAUTHBEARER"})
"""Mechanisms that send the secret itself: a person who reads the messages can log in with it."""


class ReadSettings(Section):
    """The read listener: Kafka's protocol for consumers."""

    listen: str = Field(
        default="",
        description="`host:port` where Kafka consumers connect; for each broker, its clients "
        "connect to that port + 1 + the broker's id. Empty: no read listener.",
    )
    advertised: str = Field(
        default="",
        max_length=255,
        description="Host in the addresses that clients get; that of `listen` by default.",
    )
    zone: str = Field(
        default="",
        max_length=255,
        description="Zone of this replica: a consumer with this `client.rack` is sent here from "
        "replicas elsewhere.",
    )
    authentication: Literal["none", "sasl", "certificate"] = Field(
        default="none",
        description="`sasl`: clients log in at their broker through this node, and read the topics "
        "that they may read there. `certificate`: they need one of `tls_ca_file`, and "
        "read `topics` as this node. `none`: they read `topics` as this node; on "
        "loopback only.",
    )
    sasl_mechanisms: list[Mechanism] = Field(
        default=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
        description="Mechanisms that are relayed; `PLAIN` and `OAUTHBEARER` only with TLS, or on "
        "loopback, where they can't be read on the network.",
    )
    authorisation_s: PositiveSeconds = Field(
        default=30.0,
        description="Time that a right to read a topic, as the broker answered, is valid; then it "
        "is asked for again.",
    )
    topics: PatternList = Field(
        default=[],
        description="Glob patterns of topics that clients may read without a login of their own. "
        "Empty: all, if neither they nor this node log in, on loopback.",
    )
    user_bytes_per_s: RateLimit = Field(
        default=0,
        description="Bytes of the tier a second to each user of the brokers, or certificate; 0: no "
        "limit.",
    )
    client_id_bytes_per_s: RateLimit = Field(
        default=0, description="The same to each `client.id` of a user."
    )
    tls_certificate_file: Path | None = Field(default=None, description="PEM certificate chain.")
    tls_key_file: Path | None = Field(default=None, description="PEM key of that certificate.")
    tls_ca_file: Path | None = Field(
        default=None,
        description="PEM bundle of the authorities that signed the clients' certificates.",
    )
    prefer: Literal["tier", "broker"] = Field(
        default="tier",
        description="Source of offsets that both the tier and the broker's disk have.",
    )
    lost_range: Literal["gap", "out_of_range"] = Field(
        default="gap",
        description="Answer at an offset in a recorded lost range: the next existing batch, or "
        "OFFSET_OUT_OF_RANGE.",
    )
    connections_max: PositiveInt = Field(
        default=1_000, description="Open connections of clients; each may have one to a broker."
    )
    request_bytes_max: Annotated[int, Field(ge=1_024, le=2**30)] = Field(
        default=2**20,
        description="Largest request; a longer one closes its connection. Groups whose assignments "
        "together are larger need more.",
    )
    fetch_bytes_max: Annotated[int, Field(ge=1_024, le=2**30)] = Field(
        default=8 * 2**20,
        description="Most bytes of records in one answer, if the client allows more; a first batch "
        "may be larger.",
    )
    answers_bytes_max: Annotated[int, Field(ge=2**20, le=2**40)] = Field(
        default=128 * 2**20,
        description="Most bytes of records in all answers under way together. With little room "
        "left answers are smaller; each may have 64 KiB, or one batch, in addition.",
    )
    idle_deadline_s: PositiveInt = Field(
        default=600, description="Time without requests after which a connection is closed."
    )

    @model_validator(mode="after")
    def _safe(self) -> ReadSettings:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("set both tls_certificate_file and tls_key_file, or neither")
        if not self.listen:
            return self
        host, port = self.address
        if not host or not 0 < port <= _PORT_MAX:
            raise ValueError("listen is not host:port; correct it")
        has_tls = self.tls_certificate_file is not None
        if self.authentication == "certificate" and not (has_tls and self.tls_ca_file):
            raise ValueError(
                'authentication = "certificate" needs tls_certificate_file, tls_key_file, and '
                "tls_ca_file for the clients' certificates"
            )
        if self.authentication != "certificate" and self.tls_ca_file is not None:
            raise ValueError(
                'tls_ca_file is only for authentication = "certificate": with a login, the '
                "certificate would be a second identity that the brokers never see. Remove one"
            )
        if self.authentication == "sasl" and self.topics:
            raise ValueError(
                "topics is for clients without a login of their own; for clients that log in, the "
                'brokers\' ACLs apply. Remove topics or authentication = "sasl"'
            )
        if host in LOOPBACK_HOSTS:
            return self
        if self.authentication == "none":
            raise ValueError(
                "beyond loopback the read listener has to authenticate its clients: set "
                'authentication = "sasl" or "certificate", or listen = "127.0.0.1:PORT"'
            )
        if not has_tls and READABLE & set(self.sasl_mechanisms):
            raise ValueError(
                "beyond loopback clients would send the secrets of PLAIN and OAUTHBEARER "
                "unencrypted: set tls_certificate_file and tls_key_file, or sasl_mechanisms = "
                '["SCRAM-SHA-256", "SCRAM-SHA-512"]'
            )
        return self

    def registered(self) -> ReadAddress | None:
        """The address that the node registers for the other nodes; None without a read listener."""
        if not self.listen:
            return None
        host, port = self.address
        return ReadAddress(self.advertised or host, port, self.zone)

    @property
    def given_topics(self) -> tuple[str, ...]:
        """The patterns of `topics`; all topics if the list is empty, which
        `KafkaSettings.check_readable` allows only if brokers' ACLs apply or nobody logs in.
        """
        return tuple(self.topics) or ("*",)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of `listen`; the port is 0 if it is not a number."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port) if port.isascii() and port.isdecimal() else 0
