"""Facts of routes; a late answer of one that changes something is `outcome_unknown`, never
`retry_later`.
"""

from __future__ import annotations

from api.http.route_table import RouteFacts, writes
from tests.api.fakes import make_node, openapi, shared_routes


def test_the_table_has_the_paths_methods_and_query_parameters_of_the_document() -> None:
    _, _, routes = shared_routes()
    for template, operations in openapi()["paths"].items():
        names = {
            method.upper(): frozenset(
                each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"
            )
            for method, operation in operations.items()
        }
        assert routes.find(template) == RouteFacts(template, names)


async def test_every_post_that_takes_a_role_counts_as_a_change() -> None:
    async with make_node().client() as client:
        paths = (await client.get("/v1/openapi.json")).json()["paths"]
    changing = {
        path
        for path, operations in paths.items()
        if "post" in operations and "role " in operations["post"]["description"].lower()
    }
    assert f"{PARTITION}/retention/delete-records" in changing
    assert {path for path in changing if not writes("POST", path)} == set()
    assert not writes("POST", f"{PARTITION}/retention/plan"), "a question"


PARTITION = "/v1/topics/{topic}/partitions/{partition}"
