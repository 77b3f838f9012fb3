"""Routes by path, with methods and query parameters.

The OpenAPI document has the same facts, but it is not used: building it takes longer than the rest
of a node's start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.routing import BaseRoute, compile_path
from starlette.types import Scope

ROUTE_SCOPE_KEY = "strandline.route"
_WRITING_METHODS = frozenset({"PUT", "PATCH", "DELETE"})
_CHANGED_BY_POST = ("/v1/quorum/", "/v1/jobs/", "/v1/broker/")
_CHANGES = (
    "/undo", "/reset", "/skip", "/allow-gaps", "/delete-records", "/restore", "/release", "/empty",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """The template of a route, and its query parameters by method."""

    template: str
    query_parameters: Mapping[str, frozenset[str]]

    @property
    def allow(self) -> str:
        """The value of the Allow header; a path with GET has HEAD, too."""
        methods = set(self.query_parameters)
        return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def writes(method: str, template: str) -> bool:
    """True if a request may change something. POST changes the quorum, begins jobs, and does what
    the names in `_CHANGES` say; any other POST only reads, with parameters too long for a URL.
    """
    changes = template.startswith(_CHANGED_BY_POST) or template.endswith(_CHANGES)
    return method in _WRITING_METHODS or (method == "POST" and changes)


UNKNOWN_ROUTE = RouteFacts("none", {})
"""The facts of an unknown path; metrics count all such paths under this name."""


class RouteTable:
    """Finds the route of a path: the first that matches, as the router does."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        facts: dict[str, dict[str, frozenset[str]]] = {}
        for route in iter_route_contexts(routes):
            assert route.path_format is not None
            assert route.methods is not None
            names = _query_parameters(route)
            facts.setdefault(route.path_format, {}).update(dict.fromkeys(route.methods, names))
        self._routes = [
            (compile_path(template)[0], RouteFacts(template, names))
            for template, names in facts.items()
        ]

    def find(self, path: str) -> RouteFacts:
        """The route's facts, or UNKNOWN_ROUTE."""
        for pattern, facts in self._routes:
            if pattern.match(path):
                return facts
        return UNKNOWN_ROUTE


def _query_parameters(route: RouteContext) -> frozenset[str]:
    parameters = get_flat_params(route.dependant)
    return frozenset(each.alias for each in parameters if isinstance(each.field_info, Query))


def route_of(scope: Scope) -> RouteFacts:
    """The facts of this request's route, as the gate found them."""
    facts = scope[ROUTE_SCOPE_KEY]
    assert isinstance(facts, RouteFacts)
    return facts
