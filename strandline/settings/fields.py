"""Field types and the base of the sections of a node's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(gt=0, le=2**53)]
PositiveSeconds = Annotated[float, Field(gt=0, le=366 * 86_400)]
RateLimit = Annotated[int, Field(ge=0, le=2**53)]
TopicRateLimits = Annotated[dict[str, RateLimit], Field(max_length=1_000)]
PatternList = Annotated[list[str], Field(max_length=1_000)]

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
ANY_HOSTS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not listened on


class Section(BaseModel):
    """A table of the settings file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
