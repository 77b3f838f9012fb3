"""Settings of a read replica: the listener for Kafka consumers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rlmm.records.node_facts import ReadAddress
from strandline.settings.fields import LOOPBACK_HOSTS, PositiveInt, Section

_PORT_MAX = 65_535


class ReadSettings(Section):
    """The read listener: Kafka's protocol for consumers."""

    listen: str = Field(
        default="",
        description="`host:port` where Kafka consumers connect, on loopback; a broker's clients "
        "come to the port after it plus the broker's id. Empty: no read listener.",
    )
    advertised: str = Field(
        default="",
        max_length=255,
        description="Host that clients are told; that of `listen` by default.",
    )
    zone: str = Field(
        default="",
        max_length=255,
        description="Zone of this replica: a consumer with this `client.rack` is sent here from "
        "replicas elsewhere.",
    )
    silence_max_s: PositiveInt = Field(
        default=10,
        description="Clients are told of another replica until it has not fetched the metadata log "
        "for longer.",
    )
    prefer: Literal["tier", "broker"] = Field(
        default="tier",
        description="Where offsets are read that both the tier and the broker's disk have.",
    )
    lost_range: Literal["gap", "out_of_range"] = Field(
        default="gap",
        description="Answer at an offset in a recorded lost range: the next batch there is, or "
        "OFFSET_OUT_OF_RANGE.",
    )
    connections_max: PositiveInt = Field(
        default=1_000, description="Open connections of clients; each may have one to a broker."
    )
    request_bytes_max: Annotated[int, Field(ge=1_024, le=2**30)] = Field(
        default=2**20, description="Largest request."
    )
    fetch_bytes_max: Annotated[int, Field(ge=1_024, le=2**30)] = Field(
        default=8 * 2**20,
        description="Bytes of records in one answer, where the client allows more; a first batch "
        "may be larger.",
    )
    idle_deadline_s: PositiveInt = Field(
        default=600, description="A connection without requests for longer is ended."
    )

    @model_validator(mode="after")
    def _safe(self) -> ReadSettings:
        if not self.listen:
            return self
        host, port = self.address
        if not host or not 0 < port <= _PORT_MAX:
            raise ValueError("listen is not host:port")
        if host not in LOOPBACK_HOSTS:
            raise ValueError(
                "the read listener has neither TLS nor authentication yet, and listens on "
                'loopback only: set listen = "127.0.0.1:PORT"'
            )
        return self

    def registered(self) -> ReadAddress | None:
        """The facts that other nodes learn; None: there is no read listener."""
        if not self.listen:
            return None
        host, port = self.address
        return ReadAddress(self.advertised or host, port, self.zone)

    @property
    def address(self) -> tuple[str, int]:
        """Host and first port of `listen`; port 0 if it is none."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port) if port.isascii() and port.isdecimal() else 0
