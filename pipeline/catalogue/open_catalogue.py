"""Opens the catalogue by options: of a node if `strandline.url` names one, else of a bucket."""

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

    `env` None: this process's. `progress` is called while the manifests of a bucket are read, and
    `on_damage` for each segment that cannot be read; without it such a segment is CorruptData.
    InvalidRequest names the option that is wrong or missing.
    """
    environment = os.environ if env is None else env
    address = node_address(options, environment)
    if address is not None:
        return _of_node(address, options, environment)
    stores = store_configs(options, environment)
    if not stores:
        raise InvalidRequest(
            f"the location of the tier is missing: give {URL_OPTION} = http://host:port of a node, "
            f"or {STORE_OPTION} = s3://bucket/prefix or file:///path"
        )
    return ManifestCatalogue(stores, progress=progress, on_damage=on_damage)


def _of_node(
    address: NodeAddress, options: Mapping[str, str], env: Mapping[str, str]
) -> NodeCatalogue:
    # Imported here, since an HTTP client makes a third of the imports of a process without a node.
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
