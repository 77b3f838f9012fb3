"""The named stores."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.models.base import Wire
from rsm_backends.store_config import StoreLocation


class StoreLocationView(Wire):
    """Where a store is. Credentials are never told."""

    kind: Annotated[str, Field(examples=["s3"])]
    bucket: Annotated[str | None, Field(description="Of an S3 store.", examples=["tier"])]
    prefix: Annotated[str, Field(description="In front of every key.", examples=["tier/"])]
    endpoint_url: Annotated[
        str | None, Field(description="As this node reaches it; null is AWS itself.")
    ]
    region: Annotated[str | None, Field(description="Of an S3 store.", examples=["us-east-1"])]
    addressing_style: Annotated[
        str | None, Field(description="Of an S3 store: auto, path or virtual.", examples=["auto"])
    ]
    path: Annotated[str | None, Field(description="Of a store on a file system.")]

    @classmethod
    def of(cls, location: StoreLocation | None) -> StoreLocationView | None:
        """Map."""
        if location is None:
            return None
        in_s3 = location.kind == "s3"
        return cls(
            kind=location.kind,
            bucket=location.bucket if in_s3 else None,
            prefix=location.prefix,
            endpoint_url=location.endpoint_url,
            region=location.region if in_s3 else None,
            addressing_style=location.addressing_style if in_s3 else None,
            path=None if location.path is None else str(location.path),
        )


class StoreView(Wire):
    """A store that the settings of the node that answers name, or that segments name."""

    name: Annotated[str, Field(examples=["main"])]
    configured: Annotated[bool, Field(description="False: its segments cannot be read here.")]
    default: Annotated[bool, Field(description="New copies go here.")]
    problem: Annotated[str | None, Field(description="Why it cannot be used now.")]
    location: Annotated[
        StoreLocationView | None, Field(description="Null for a store that is not configured.")
    ]
    segments: Annotated[
        int | None, Field(description="Whose metadata names it; null: not counted.", examples=[120])
    ]
    size_bytes: Annotated[
        int | None, Field(description="Of their `.log` files; null: not counted.")
    ]


class StoresView(Wire):
    """All of them, by name."""

    stores: list[StoreView]
