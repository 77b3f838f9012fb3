"""Routes that are tried only for their own paths: none is missed by it."""

from __future__ import annotations

import pytest
from fastapi.routing import iter_route_contexts

from api.http.resource_router import ResourceRouter
from api.http.route_table import UNKNOWN_ROUTE
from tests.api.fakes import make_node, openapi, shared_routes
from tests.api.test_hostile_input import PATH_VALUES


def resource_routers() -> list[ResourceRouter]:
    app, _, _ = shared_routes()
    routers = [getattr(each, "original_router", None) for each in app.routes]
    inner = [each.routes for each in routers if each is not None]
    found = [getattr(each, "original_router", None) for routes in inner for each in routes]
    return [each for each in found if isinstance(each, ResourceRouter)]


def test_no_path_fits_a_template_of_one_router_before_that_of_its_own() -> None:
    _, _, routes = shared_routes()
    routers = [
        {f"/v1{each.path_format}" for each in iter_route_contexts(router.routes)}
        for router in resource_routers()
    ]
    assert len(routers) > 20
    for template in openapi()["paths"]:
        if not template.startswith("/v1/") or template == "/v1/openapi.json":
            continue
        found = routes.find(template.format(**PATH_VALUES))
        assert found is not UNKNOWN_ROUTE
        assert any({template, found.template} <= router for router in routers), template


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/topics/payments/nothing", "/v2/quorum"])
async def test_a_path_of_no_router_is_not_found(path: str) -> None:
    async with make_node().client() as client:
        answer = await client.get(path)
    assert (answer.status_code, answer.json()["kind"]) == (404, "no_such_route")
