"""A router that is tried only for its own paths.

FastAPI tries all routes of a request in order, several times if routers are nested: with a hundred
routes that took more than half of a short request's time. The gate has found the path's template by
then.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from api.http.route_table import ROUTE_SCOPE_KEY, RouteFacts


class ResourceRouter(APIRouter):
    """The routes of one subject, which are included below `prefix`."""

    def __init__(self, routes: Sequence[BaseRoute], prefix: str) -> None:
        super().__init__(routes=list(routes))
        paths = (each.path_format for each in routes if isinstance(each, APIRoute))
        self._templates = frozenset(prefix + each for each in paths)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as any router does, if the path is one of its own or the request did not pass the
        gate.
        """
        facts = scope.get(ROUTE_SCOPE_KEY)
        if isinstance(facts, RouteFacts) and facts.template not in self._templates:
            return Match.NONE, {}
        return super().matches(scope)
