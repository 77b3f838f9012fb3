"""Settings of the HTTP interface."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from strandline.settings.fields import (
    ANY_HOSTS,
    LOOPBACK_HOSTS,
    PositiveInt,
    PositiveSeconds,
    Section,
)


class HttpSettings(Section):
    """The HTTP interface."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=9480, description="Port; 0 takes a free one."
    )
    advertised: str = Field(
        default="",
        max_length=255,
        description="`host:port` by which the other nodes reach this one. Empty: `host` and "
        "`port`, with the host of the quorum's address if `host` is no single address.",
    )
    tokens_file: Path | None = Field(
        default=None,
        description="Lines `name role sha256-of-token`; roles read, broker (of a plug-in), "
        "operate, admin.",
    )
    anonymous_role: Literal["none", "read", "operate", "admin"] = Field(
        default="none",
        description="Role of a request without a token; other than `none` only on loopback.",
    )
    tls_certificate_file: Path | None = Field(default=None, description="PEM certificate chain.")
    tls_key_file: Path | None = Field(default=None, description="PEM key of that certificate.")
    connections_max: PositiveInt = Field(
        default=1_000,
        description="Most open connections; as many TLS handshakes may be under way, too.",
    )
    body_bytes_max: PositiveInt = Field(default=1_048_576, description="Largest request body.")
    request_timeout_s: PositiveSeconds = Field(
        default=30.0, description="Deadline to answer one request (streams: to send one chunk)."
    )
    stream_bytes_per_s_min: PositiveInt = Field(
        default=131_072,
        description="Least average rate at which a client has to take a stream; a slower one is "
        "disconnected.",
    )

    event_streams_max: PositiveInt = Field(
        default=64, description="Open streams of events: open pages of `/ui`."
    )
    hand_on_timeout_s: PositiveSeconds = Field(
        default=25.0,
        description="Deadline for a different node's answer to a request that only that one can "
        "answer, within `request_timeout_s`.",
    )
    view_timeout_s: PositiveSeconds = Field(
        default=2.0,
        description="Deadline for each other node's part of a view of the whole cluster; one that "
        "misses it is named in the view.",
    )

    @model_validator(mode="after")
    def _safe(self) -> HttpSettings:
        loopback = self.host in LOOPBACK_HOSTS
        if self.anonymous_role != "none" and not loopback:
            raise ValueError(
                'anonymous_role is allowed only on loopback: set host = "127.0.0.1", or '
                'anonymous_role = "none" and a tokens_file'
            )
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("set both tls_certificate_file and tls_key_file, or neither")
        return self

    def registered(self, quorum_address: str) -> str | None:
        """The URL that this node's registration gives to the other nodes; None if they can't reach
        it. `quorum_address` is the `host:port` of this node's quorum listener, "" without one.
        """
        scheme = "http" if self.tls_certificate_file is None else "https"
        if self.advertised:
            return f"{scheme}://{self.advertised}"
        others = quorum_address.rpartition(":")[0]
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.host in ANY_HOSTS:
            host = others
        elif self.host in LOOPBACK_HOSTS and others.strip("[]") not in ("", *LOOPBACK_HOSTS):
            return None
        return f"{scheme}://{host}:{self.port}" if host and self.port else None
