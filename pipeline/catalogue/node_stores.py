"""The stores of a node's segments: locations from the node, access from the options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.node_client import NodeClient
from pipeline.catalogue.store_options import DEFAULT_STORE, STORE_OPTION, StoreOptions
from rsm_backends.store_config import StoreConfig


def node_stores(
    client: NodeClient, options: StoreOptions, env: Mapping[str, str]
) -> tuple[dict[str, StoreConfig], str]:
    """The stores by name, and the name of the store for new copies. An address among the options
    wins over the node's, which perhaps only the node can reach.
    """
    listed = client.get("/v1/stores", counted="false")["stores"]
    default = next((str(each["name"]) for each in listed if each["default"]), DEFAULT_STORE)
    if options.has_unnamed:
        raise InvalidRequest(
            f"has no effect with a node, which has named stores: give {STORE_OPTION}.{default}",
            field=STORE_OPTION,
        )
    stores = options.addressed(env)
    for each in listed:
        name, location = str(each["name"]), each.get("location")
        if name not in stores and location is not None:
            stores[name] = _config(name, location, options, env)
    options.check_used(stores)
    return stores, default


def _config(
    name: str, location: Mapping[str, Any], options: StoreOptions, env: Mapping[str, str]
) -> StoreConfig:
    known: dict[str, Any] = {"kind": location["kind"], "prefix": location["prefix"]}
    if location["path"] is not None:
        known["path"] = Path(location["path"])
    if location["kind"] == "s3":
        names = ("bucket", "endpoint_url", "region", "addressing_style")
        known |= {each: location[each] for each in names}
        known |= options.access(name, env, known)
    return StoreConfig(name=name, **known)
