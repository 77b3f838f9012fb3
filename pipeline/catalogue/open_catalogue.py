"""From options to a catalogue: a node if `strandline.url` names one, else the bucket alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.manifest_catalogue import ManifestCatalogue, OnDamage, Progress
from pipeline.catalogue.node_address import URL_OPTION, NodeAddress, node_address
from pipeline.catalogue.store_options import STORE_OPTION, StoreOptions, store_configs
from pipeline.catalogue.tiered_segment import Catalogue

if TYPE_CHECKING:
    from pipeline.catalogue.node_catalogue import NodeCatalogue


def open_catalogue(
    options: Mapping[str, str],
    env: Mapping[str, str] | None = None,
    *,
    progress: Progress | None = None,
    on_damage: OnDamage | None = None,
) -> Catalogue:
    """The catalogue that the store and node options name; its `stores` are what tasks open.

    `env` None: this process's. `progress` is told of manifests while a bucket is looked through,
    and `on_damage` of segments that it cannot read; without it they are CorruptData to who asks.
    InvalidRequest names the option that is wrong or missing.
    """
    environment = os.environ if env is None else env
    address = node_address(options, environment)
    if address is not None:
        return _of_node(address, options, environment)
    stores = store_configs(options, environment)
    if not stores:
        raise InvalidRequest(
            f"say where the tier is: {URL_OPTION} = http://host:port of a node, or {STORE_OPTION} "
            "= s3://bucket/prefix or file:///path"
        )
    return ManifestCatalogue(stores, progress=progress, on_damage=on_damage)


def _of_node(
    address: NodeAddress, options: Mapping[str, str], env: Mapping[str, str]
) -> NodeCatalogue:
    # Here, for an HTTP client is a third of what a process imports that asks a bucket alone.
    from pipeline.catalogue.node_catalogue import NodeCatalogue
    from pipeline.catalogue.node_client import NodeClient
    from pipeline.catalogue.node_stores import node_stores

    client = NodeClient(address)
    try:
        stores, default_store = node_stores(client, StoreOptions.of(options), env)
    except BaseException:
        client.close()
        raise
    return NodeCatalogue(client, stores, default_store)
