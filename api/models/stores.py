"""The named stores."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.models.base import Wire
from rsm_backends.store_config import StoreLocation

S3_FIELDS = ("bucket", "region", "addressing_style")


class StoreLocationView(Wire):
    """Location of a store, without credentials."""

    kind: Annotated[str, Field(examples=["s3"])]
    bucket: Annotated[str | None, Field(description="Of an S3 store.", examples=["tier"])]
    prefix: Annotated[str, Field(description="Prepended to every key.", examples=["tier/"])]
    endpoint_url: Annotated[
        str | None, Field(description="The endpoint that this node uses; null: AWS itself.")
    ]
    region: Annotated[str | None, Field(description="Of an S3 store.", examples=["us-east-1"])]
    addressing_style: Annotated[
        str | None, Field(description="Of an S3 store: auto, path or virtual.", examples=["auto"])
    ]
    path: Annotated[str | None, Field(description="Of a store on a file system.")]

    @classmethod
    def of_location(cls, location: StoreLocation | None) -> StoreLocationView | None:
        """The view of a location; S3 fields are null for a store of a different kind."""
        if location is None:
            return None
        of_s3 = {} if location.kind == "s3" else dict.fromkeys(S3_FIELDS)
        path = None if location.path is None else str(location.path)
        return cls.of(location, path=path, **of_s3)


class StoreView(Wire):
    """A store that the queried node's settings or any segments name."""

    name: Annotated[str, Field(examples=["main"])]
    configured: Annotated[bool, Field(description="False: this node can't read its segments.")]
    default: Annotated[bool, Field(description="New copies go here.")]
    problem: Annotated[str | None, Field(description="Why the store can't be used now.")]
    location: Annotated[
        StoreLocationView | None, Field(description="Null for a store that is not configured.")
    ]
    segments: Annotated[
        int | None,
        Field(
            description="Segments in the store, by the metadata; null: not counted.", examples=[120]
        ),
    ]
    size_bytes: Annotated[
        int | None, Field(description="Bytes of their `.log` files; null: not counted.")
    ]


class StoresView(Wire):
    """All stores, by name."""

    stores: list[StoreView]
