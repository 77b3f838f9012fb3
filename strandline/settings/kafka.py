"""The settings about a node's broker."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from strandline.settings.fields import LOOPBACK_HOSTS, PositiveSeconds, Section
from strandline.settings.read import READABLE, ReadSettings


class SecurityProtocol(StrEnum):
    """Kafka's `security.protocol`."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


ANNOUNCED = "announced"
"""Value of `kafka.broker` if the broker's plug-in announces its address to the node."""


class KafkaSettings(Section):
    """The broker beside this node."""

    log_dirs: list[Path] = Field(
        default=[], max_length=64, description="The broker's `log.dirs`; read only."
    )
    broker: str = Field(
        default="",
        description="`host:port` of this node's own broker; `announced`: the address that its "
        "plug-in reports. Empty: a standalone directory; this node counts as leader of "
        "its partitions.",
    )
    bootstrap: Annotated[list[str], Field(max_length=64)] = Field(
        default=[],
        description="`host:port` of brokers from which a read replica learns all of them; `broker` "
        "by default.",
    )
    security_protocol: SecurityProtocol = Field(
        default=SecurityProtocol.PLAINTEXT,
        description="Security protocol of connections to the broker.",
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="SCRAM-SHA-512", description="SASL mechanism, if the protocol uses SASL."
    )
    sasl_username: str = Field(default="", description="SASL user name.")
    sasl_password_file: Path | None = Field(
        default=None, description="File that holds the SASL password."
    )
    ssl_ca_file: Path | None = Field(
        default=None, description="PEM file of the authority that signed the broker's certificate."
    )
    ssl_certificate_file: Path | None = Field(
        default=None, description="PEM file with this node's certificate, for mutual TLS."
    )
    ssl_key_file: Path | None = Field(
        default=None, description="PEM file with the key of that certificate."
    )
    request_timeout_s: PositiveSeconds = Field(
        default=10.0, description="Deadline of one request to the broker."
    )

    @model_validator(mode="after")
    def _password_goes_to_the_brokers_alone(self) -> KafkaSettings:
        """Refuse PLAIN with an announced address: a client with a token of the role broker or above
        can announce any address, and would be sent the password.
        """
        if self.broker != ANNOUNCED or self.sasl_mechanism != "PLAIN":
            return self
        certified = self.security_protocol is SecurityProtocol.SASL_SSL and self.ssl_ca_file
        if self.security_protocol.startswith("SASL_") and not certified:
            raise ValueError(
                'with broker = "announced" any client with a token of the role broker or above '
                "chooses the broker's address, and PLAIN would send the password there. Set "
                "broker = host:port, or use a SCRAM mechanism, or SASL_SSL with the "
                "brokers' own CA as ssl_ca_file"
            )
        return self

    def bootstrap_addresses(self) -> tuple[tuple[str, int], ...]:
        """The brokers' addresses as (host, port). Raises ValueError if one is not host:port."""
        found = []
        for text in self.bootstrap or [self.broker]:
            host, _, port = text.rpartition(":")
            if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65_536:
                raise ValueError(f"kafka.bootstrap: {text!r} is not host:port; correct it")
            found.append((host.strip("[]"), int(port)))
        return tuple(found)

    def check_readable(self, read: ReadSettings) -> None:
        """Raise ValueError unless a read replica with these settings can serve these brokers'
        topics.
        """
        if not self.bootstrap and self.broker in ("", ANNOUNCED):
            raise ValueError(
                "read.listen also serves records from the brokers' disks: set kafka.bootstrap"
            )
        hosts = {host for host, _ in self.bootstrap_addresses()}
        if read.authentication == "sasl":
            self._check_logins(read, hosts)
        elif not read.topics and (
            read.authentication == "certificate"
            or self.security_protocol is not SecurityProtocol.PLAINTEXT
        ):
            raise ValueError(
                "read.topics is empty, so clients may read no topic: name the topics that they may "
                "read with this node's own rights at the brokers (glob patterns), or set "
                'read.authentication = "sasl"'
            )

    def _check_logins(self, read: ReadSettings, hosts: set[str]) -> None:
        if not self.security_protocol.startswith("SASL_"):
            raise ValueError(
                'with read.authentication = "sasl" clients log in at the brokers: set '
                "kafka.security_protocol to SASL_PLAINTEXT or SASL_SSL, kafka.bootstrap to those "
                "listeners, and kafka.sasl_username to a user for this node"
            )
        is_readable = self.security_protocol is SecurityProtocol.SASL_PLAINTEXT and not hosts <= {
            *LOOPBACK_HOSTS
        }
        if is_readable and READABLE & {*read.sasl_mechanisms, self.sasl_mechanism}:
            raise ValueError(
                "PLAIN and OAUTHBEARER would send their secrets to the brokers unencrypted: "
                'set kafka.security_protocol = "SASL_SSL", or read.sasl_mechanisms = '
                '["SCRAM-SHA-256", "SCRAM-SHA-512"], and one of these as kafka.sasl_mechanism'
            )
