"""The busiest route, answered without FastAPI's solver and router.

FastAPI works out anew at every request which dependency wants what: more than half of what a
look-up costs. Here that is worked out once, from FastAPI's own reading of the very same
declarations: the same fields validate the parameters, and the same functions are called in the same
order. Only a request whose every parameter is valid is taken. Any other goes the general way,
before anything of it was called, so that there is one place that refuses.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from fastapi.dependencies.models import Dependant
from fastapi.requests import Request
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from kafka_formats.errors import InternalError

_SCALARS = {str, int, bool, NoneType}


class _Parameter(NamedTuple):
    """A declared parameter of step number `step`; `validate` is FastAPI's, with its constraints."""

    step: int
    place: str
    alias: str
    name: str
    validate: Callable[[Any], tuple[Any, Sequence[Any]]]
    required: bool
    default: str | int | None


@dataclass(frozen=True, slots=True)
class _Step:
    """A function to call, with what it is to be given; `results` by the step that made them."""

    call: Callable[..., Awaitable[Any]]
    request_names: tuple[str, ...]
    results: tuple[tuple[str, int], ...]


class PreparedRoute:
    """An ASGI layer in front of `app` that answers the GET whose function is `endpoint`."""

    def __init__(
        self, app: ASGIApp, routes: Sequence[BaseRoute], endpoint: Callable[..., Any]
    ) -> None:
        (route,) = (each for each in iter_route_contexts(routes) if each.endpoint is endpoint)
        if route.methods != {"GET"} or not _is_model(route.response_model):
            raise _too_much(endpoint, "it is not a GET with a model for its answer")
        self.general = app
        self._match: Callable[[str], Any] = route.path_regex.match
        self._serialize: Callable[[Any], bytes] = route.response_field.serialize_json
        self._steps: list[_Step] = []
        self._parameters: list[_Parameter] = []
        self._prepare(route.dependant)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let `app` answer."""
        found = self._match(scope["path"]) if scope["type"] == "http" else None
        if found is not None and scope["method"] == "GET":
            request = Request(scope, receive, send)
            arguments = self._validated(request, found.groupdict())
            if arguments is not None:
                content = self._serialize(await self._run(request, arguments))
                await Response(content, media_type="application/json")(scope, receive, send)
                return
        await self.general(scope, receive, send)

    def _validated(self, request: Request, path: Mapping[str, str]) -> list[dict[str, Any]] | None:
        """The arguments of each step; None when any is missing or wrong."""
        given = {"path": path, "query": request.query_params, "header": request.headers}
        arguments: list[dict[str, Any]] = [{} for _ in self._steps]
        for step, place, alias, name, validate, required, default in self._parameters:
            text = given[place].get(alias)
            if text is not None:
                arguments[step][name], errors = validate(text)
                if errors:
                    return None
            elif required:
                return None
            else:
                arguments[step][name] = default
        return arguments

    async def _run(self, request: Request, arguments: list[dict[str, Any]]) -> Any:
        """What the last step, which is the endpoint, returns."""
        results: list[Any] = []
        for step, values in zip(self._steps, arguments, strict=True):
            for name in step.request_names:
                values[name] = request
            for name, number in step.results:
                values[name] = results[number]
            results.append(await step.call(**values))
        return results[-1]

    def _prepare(self, dependant: Dependant) -> int:
        """Add the step of `dependant` behind those of what it depends on; its number.

        InternalError for anything declared that a step has no place for.
        """
        results = [(sub.name, self._prepare(sub)) for sub in dependant.dependencies]
        call = dependant.call
        for number, step in enumerate(self._steps):
            if step.call is call and dependant.use_cache:
                return number  # as FastAPI does: one function is called once a request
        if call is None or not _is_coroutine_function(call):
            raise _too_much(call, "it is not a coroutine function")
        if (
            dependant.cookie_params
            or dependant.body_params
            or dependant.websocket_param_name
            or dependant.response_param_name
            or dependant.background_tasks_param_name
            or dependant.security_scopes_param_name
            or dependant.concurrency
        ):
            raise _too_much(call, "it takes more than paths, queries, headers and the request")
        number = len(self._steps)
        for place, fields in (
            ("path", dependant.path_params),
            ("query", dependant.query_params),
            ("header", dependant.header_params),
        ):
            self._parameters += [_parameter(number, place, field, call) for field in fields]
        names = (dependant.request_param_name, dependant.http_connection_param_name)
        self._steps.append(
            _Step(
                call,
                tuple(name for name in names if name is not None),
                tuple((name, step) for name, step in results if name is not None),
            )
        )
        return number


def _parameter(step: int, place: str, field: Any, call: Callable[..., Any]) -> _Parameter:
    info = field.field_info
    if not _scalar(info.annotation) or info.validation_alias not in (None, field.alias):
        raise _too_much(call, f"{field.name} is more than one text, number or boolean")
    required = info.is_required()
    default = None if required else field.default
    if info.validate_default or info.default_factory or type(default) not in _SCALARS:
        raise _too_much(call, f"the default of {field.name} is not a plain value")
    return _Parameter(step, place, field.alias, field.name, field.validate, required, default)


def _scalar(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _scalar(annotation.__origin__)
    if origin in (Union, UnionType):
        return all(map(_scalar, get_args(annotation)))
    return annotation in _SCALARS


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _is_coroutine_function(call: Callable[..., Any]) -> bool:
    of_object = getattr(call, "__call__", None)  # noqa: B004 - not whether: which
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(of_object)


def _too_much(call: Callable[..., Any] | None, why: str) -> InternalError:
    return InternalError(f"{call!r} can't be prepared, leave it to FastAPI: {why}")
