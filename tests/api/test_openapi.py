"""The OpenAPI document is complete, is the golden file, and agrees with docs/API.md."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.http.errors import PROBLEM_KINDS
from tests.api.fakes import openapi

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "openapi.json"
DOCUMENT = ROOT / "docs" / "API.md"


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path, operation) of everything in it."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_the_golden_file_is_the_document() -> None:
    text = json.dumps(openapi(), indent=1, sort_keys=True) + "\n"
    if os.environ.get("STRANDLINE_GOLDEN") == "rewrite":
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text, "run `make golden` and read the difference"


def test_every_operation_says_what_it_is_for_and_how_it_fails() -> None:
    for method, path, operation in operations(openapi()):
        assert operation["summary"], (method, path)
        assert operation["tags"], (method, path)
        responses = operation["responses"]
        assert "422" not in responses, (method, path)
        assert {"400", "500", "503"} <= set(responses), (method, path)
        assert ("401" in responses) == ("security" in operation), (method, path)
        assert ("413" in responses) == ("requestBody" in operation), (method, path)
        for status, response in responses.items():
            assert response["description"], (method, path, status)
            if int(status) >= 400:
                assert set(response["content"]) == {"application/problem+json"}
            assert "Strandline-Request-Id" in response["headers"]
            assert ("Strandline-Metadata-Offset" in response["headers"]) == path.startswith("/v1/")


def test_every_number_parameter_has_both_bounds() -> None:
    for method, path, operation in operations(openapi()):
        for parameter in operation.get("parameters", []):
            schema = parameter["schema"]
            for option in [schema, *schema.get("anyOf", [])]:
                if option.get("type") == "integer":
                    assert {"minimum", "maximum"} <= set(option), (method, path, parameter["name"])
                if option.get("type") == "string" and "enum" not in option:
                    assert "maxLength" in option, (method, path, parameter["name"])


def test_no_parameter_may_be_null() -> None:
    for method, path, operation in operations(openapi()):
        for parameter in operation.get("parameters", []):
            options = parameter["schema"].get("anyOf", [parameter["schema"]])
            assert {"type": "null"} not in options, (method, path, parameter["name"])


def test_every_reference_leads_somewhere() -> None:
    document = openapi()
    schemas = document["components"]["schemas"]
    references = {
        word.removeprefix("#/components/schemas/")
        for word in json.dumps(document).replace('"', "\n").splitlines()
        if word.startswith("#/components/schemas/")
    }
    assert references <= set(schemas)
    assert {"HTTPValidationError", "ValidationError"}.isdisjoint(schemas)


def test_every_route_and_every_error_kind_is_in_the_docs() -> None:
    text = DOCUMENT.read_text()
    missing = [
        f"{method} {path}"
        for method, path, _ in operations(openapi())
        if f"`{method} {path}`" not in text
    ]
    assert missing == []
    for row in PROBLEM_KINDS.values():
        assert f"| `{row.kind}` | {row.status} | `{row.java_exception}` |" in text, row


def test_every_parameter_is_in_the_docs() -> None:
    text = DOCUMENT.read_text().lower()
    names = {
        parameter["name"].lower()
        for _, _, operation in operations(openapi())
        for parameter in operation.get("parameters", [])
    }
    assert {name for name in names if f"`{name}" not in text and f"{{{name}}}" not in text} == set()


def test_each_offset_is_of_one_kind_that_the_page_names() -> None:
    page = DOCUMENT.read_text()
    kinds = re.findall(r"`(\w+)`", page[page.index("**Offsets.**") : page.index("**Pages.**")])
    names = {
        name
        for schema in openapi()["components"]["schemas"].values()
        for name in schema.get("properties", {})
        if "offset" in name
    }
    assert "start_offset" in names
    assert names - set(kinds) == set()
    assert sorted(set(kinds)) == sorted(kinds), "one of them is named twice"
