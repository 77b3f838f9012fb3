"""Every command that asks a node reads only keys that the API's models have, in whatever state the
node is: answers are made from the schema of each route, not by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx
import pytest

from strandline.cli.lazy_commands import load_command
from strandline.cli.main import PANELS
from strandline.node import ambient
from tests.strandline.command import invoke

SPEC = json.loads((Path(__file__).parents[2] / "golden" / "openapi.json").read_text())
ID = "AAAAAAAAQACAAAAAAAAAAQ"
REQUESTS_MAX = 20
STATES = 6
CLIENT = httpx.Client
BEFORE = ("--before", 7, "--why", "x")
ONE_DAY = ("--retention-time", "1d")
WHY = ("--reason", "x", "--yes")

COMMANDS: dict[str, list[tuple[object, ...]]] = {
    "status": [(), ("--all-nodes",)],
    "lag": [(), ("--all",)],
    "sizes": [()],
    "running": [()],
    "topics list": [()],
    "topics show": [("orders",)],
    "topics enable": [("orders",), ("logs.*", "--dry-run")],
    "topics disable": [("logs.*", "--why", "x")],
    "topics delete": [("orders",), ("orders", "--yes")],
    "topics deletion": [("orders",)],
    "topics undo-delete": [("orders",)],
    "partitions list": [(), ("orders",), ("--waiting",)],
    "partitions skip": [("orders", 0, "--reason", "x"), ("orders", 0, "--first", 1, *WHY)],
    "partitions allow-gaps": [("orders", 0, "--reason", "x"), ("orders", 0, *WHY)],
    "segments list": [("orders", 0)],
    "segments show": [("orders", 0, ID)],
    "segments history": [("orders", 0, ID)],
    "offsets": [("orders", 0)],
    "leader-transition": [("orders", 0)],
    "follower-fetch": [("orders", 0, "--fetch-offset", 0, "--leader-epoch", 0)],
    "claims show": [("orders", 0)],
    "claims reset": [("orders", 0), ("orders", 0, "--yes")],
    "mode set": [("orders", 0, "delegated"), ("orders", 0, "delegated", "--yes")],
    "policy show": [("orders",)],
    "policy set": [
        ("orders", "--retention-time", "1d"),
        ("orders", "--retention-size", "1GiB", "--dry-run"),
    ],
    "pause": [
        ("copying", "--why", "x"),
        ("deleting", "--topic", "orders"),
        ("copying", "--cluster"),
    ],
    "resume": [("copying",), ("deleting", "--topic", "orders"), ("copying", "--node", 3)],
    "collect": [(), ("--apply",)],
    "repair": [(), ("--yes",)],
    "stores list": [()],
    "audit": [(), ("--all-nodes",)],
    "retention plan": [("orders", 0)],
    "retention accept": [("orders", 0, "--accept-percent", 9)],
    "retention delete-records": [("orders", 0, *BEFORE), ("orders", 0, *BEFORE, "--yes")],
    "erase": [("--topic", "orders", "--why", "x")],
    "trash list": [(), ("--topic", "orders")],
    "trash restore": [("orders", "--why", "x"), ("orders", 0, "--why", "x", "--hold")],
    "trash release": [("orders", 0, "--why", "x")],
    "trash empty": [("orders", "--why", "x"), ("orders", 0, "--why", "x", "--yes", "--as-of", 9)],
    "limits show": [()],
    "limits set": [
        ("--copy", "1MiB"),
        ("--copy", "1MiB", "--node", 3),
        ("--read", "unlimited", "--cluster", "--topic", "orders"),
    ],
    "log show": [()],
    "log set": [("tier", "debug")],
    "settings list": [()],
    "settings show": [(), ("--topic", "orders")],
    "settings remove": [("copying.paused", "--cluster")],
    "nodes list": [()],
    "nodes show": [(1,)],
    "nodes remove": [(7,)],
    "quorum describe": [()],
    "quorum can-stop": [(1,)],
    "quorum finalize": [(1,)],
    "quorum add-voter": [("4@strand-4:9481:b-Jc1l2sQ1ySHBQ2a4nIlw",)],
    "quorum remove-voter": [(2,)],
    "quorum transfer": [(2,)],
    "quorum accept-cut": [(), ("--yes",)],
}
NOT_JSON = {"records", "stores verify"}
"""They read bytes, or work without a node."""


@dataclass
class NodeOfSchema:
    """Answers of a node. `number` chooses among the values of enumerations, and in a "mixed" answer
    what is null of that which may be; all of it is in a "bare" one. In an "empty" one lists are
    empty, too.
    """

    number: int
    kind: str
    asked: list[str] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        assert len(self.asked) <= REQUESTS_MAX, "it waits for another state, for ever"
        operation = _operation(request.method.lower(), request.url.path)
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        return httpx.Response(200, json=self.example(schema, ""))

    def example(self, schema: dict[str, Any], name: str) -> Any:
        """A value of this schema, with all of its keys and no others."""
        schema = _resolved(schema)
        if "anyOf" in schema:
            kinds = [each for each in schema["anyOf"] if each != {"type": "null"}]
            may_be_null = len(kinds) < len(schema["anyOf"])
            if may_be_null and (name == "next_cursor" or self._is_null(name)):
                return None
            return self.example(kinds[self._moment % len(kinds)], name)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][self._moment % len(schema["enum"])]
        match schema.get("type"):
            case "object" if "properties" in schema:
                return {key: self.example(of, key) for key, of in schema["properties"].items()}
            case "object":
                values = schema["additionalProperties"]
                names = _resolved(schema.get("propertyNames", {})).get("enum")
                if names is None:
                    names = [] if self.kind == "empty" else ["main"]
                return {each: self.example(values, each) for each in names}
            case "array":
                return [] if self.kind == "empty" else [self.example(schema["items"], name)]
            case "boolean":
                return self.kind == "full" or not self._is_null(name)
            case "integer" | "number":
                return max(int(schema.get("minimum", 0)), 7 if self.kind == "full" else 0)
            case "null":
                return None
        found = schema.get("examples") or [name]
        return found[self._moment % len(found)]

    def _is_null(self, name: str) -> bool:
        if self.kind == "mixed":
            return crc32(f"{name} {self.number}".encode()) % 2 == 0
        return self.kind != "full"

    @property
    def _moment(self) -> int:
        """States change from answer to answer, as those of a job do."""
        return self.number + len(self.asked)


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = SPEC["components"]["schemas"][schema["$ref"].split("/")[-1]]
    return found


def _operation(method: str, path: str) -> dict[str, Any]:
    """That of the API; one whose parts are fixed goes before one with a parameter."""
    parts = path.split("/")
    found = [
        (template.count("{"), operations[method])
        for template, operations in SPEC["paths"].items()
        if method in operations and _fits(template.split("/"), parts)
    ]
    assert found, f"the API has no {method} {path}"
    operation: dict[str, Any] = min(found, key=lambda each: each[0])[1]
    return operation


def _fits(template: list[str], parts: list[str]) -> bool:
    return len(template) == len(parts) and all(
        ours.startswith("{") or ours == theirs for ours, theirs in zip(template, parts, strict=True)
    )


def _leaves() -> Iterator[str]:
    panel = PANELS["Ask a running node"]
    for name in panel:
        command = load_command("strandline.cli", panel, name)
        group = getattr(command, "commands", None)
        yield from [name] if group is None else [f"{name} {each}" for each in group]


def test_every_command_is_tried() -> None:
    assert {*COMMANDS, *NOT_JSON} == set(_leaves())


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_node_may_answer_is_shown(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for options in COMMANDS[name]:
        _run(monkeypatch, name, (*options, "--json"), NodeOfSchema(0, "full"))
        for number in range(STATES):
            for kind in ("full", "mixed", "bare", "empty"):
                _run(monkeypatch, name, options, NodeOfSchema(number, kind))


def _run(
    patched: pytest.MonkeyPatch, name: str, options: tuple[object, ...], node: NodeOfSchema
) -> None:
    """A key that is missing, or null, raises here."""
    transport = httpx.MockTransport(node.answer)

    def http(**given: Any) -> httpx.Client:
        return CLIENT(**given | {"mounts": None, "transport": transport})

    patched.setattr(httpx, "Client", http)
    patched.setattr(ambient, "sleep", _no_sleep)
    done = invoke(*name.split(), *options, env={"COLUMNS": "200"})
    assert node.asked, done.output


async def _no_sleep(_seconds: float) -> None:
    """States change at once."""
