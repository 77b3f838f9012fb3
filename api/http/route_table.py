"""Routes by path, with methods and query parameters, from the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.routing import compile_path
from starlette.types import Scope

ROUTE_SCOPE_KEY = "strandline.route"
_WRITING_METHODS = frozenset({"PUT", "PATCH", "DELETE"})
_CHANGED_BY_POST = ("/v1/quorum/", "/v1/jobs/", "/v1/broker/")
_CHANGES = ("/undo", "/reset", "/skip", "/allow-gaps", "/delete-records")


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """Template and query parameters, by method, of a route."""

    template: str
    query_parameters: Mapping[str, frozenset[str]]

    @property
    def allow(self) -> str:
        """Value of the Allow header; a path with GET has HEAD, too."""
        methods = set(self.query_parameters)
        return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def writes(method: str, template: str) -> bool:
    """True if a request may change something. POST changes the quorum, begins jobs, and does what
    the last words of `_CHANGES` say; otherwise it only asks, with a question too long for a URL.
    """
    changes = template.startswith(_CHANGED_BY_POST) or template.endswith(_CHANGES)
    return method in _WRITING_METHODS or (method == "POST" and changes)


UNKNOWN_ROUTE = RouteFacts("none", {})
"""Facts of an unknown path; metrics show all of them under this name."""


class RouteTable:
    """Finds the route of a path: the first that fits, as the router does."""

    def __init__(self, openapi: Mapping[str, Any]) -> None:
        self._routes: list[tuple[re.Pattern[str], RouteFacts]] = []
        for template, operations in openapi["paths"].items():
            names = {
                method.upper(): frozenset(
                    parameter["name"]
                    for parameter in operation.get("parameters", ())
                    if parameter["in"] == "query"
                )
                for method, operation in operations.items()
            }
            self._routes.append((compile_path(template)[0], RouteFacts(template, names)))

    def find(self, path: str) -> RouteFacts:
        """The route's facts, or UNKNOWN_ROUTE."""
        for pattern, facts in self._routes:
            if pattern.match(path):
                return facts
        return UNKNOWN_ROUTE


def route_of(scope: Scope) -> RouteFacts:
    """Facts of this request's route, as the gate found them."""
    facts = scope[ROUTE_SCOPE_KEY]
    assert isinstance(facts, RouteFacts)
    return facts
