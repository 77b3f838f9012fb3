"""Make tests/data/kubernetes-1.37.0/schema.json: what Kubernetes takes of the kinds in deploy/.

    pip download --no-deps kubernetes-validate==1.37.0
    .venv/bin/python -m tests.capture.capture_kubernetes_schema kubernetes_validate-1.37.0-*.whl

The package carries Kubernetes' own OpenAPI definitions as JSON schemas that refuse unknown fields;
of its 70 MB this keeps what the kinds refer to, without descriptions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tests.real.toolbox import REPOSITORY

VERSION = "1.37.0"
TARGET = REPOSITORY / "tests" / "data" / f"kubernetes-{VERSION}" / "schema.json"
MEMBER = f"kubernetes_validate/kubernetes-json-schema/v{VERSION}-local-strict/_definitions.json"
KINDS = {
    "apps/v1 StatefulSet": "io.k8s.api.apps.v1.StatefulSet",
    "policy/v1 PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
    "v1 ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "v1 Service": "io.k8s.api.core.v1.Service",
}


def bare(schema: Any) -> Any:
    """Without descriptions and vendor keys, references made local."""
    if isinstance(schema, list):
        return [bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for name, value in schema.items():
        if name == "properties":
            kept[name] = {field: bare(each) for field, each in value.items()}
        elif name == "$ref":
            kept[name] = "#/$defs/" + value.rpartition("/")[2]
        elif name != "description" and not name.startswith("x-"):
            kept[name] = bare(value)
    return kept


def references(schema: Any) -> set[str]:
    """The definitions that it names."""
    if isinstance(schema, list):
        return set().union(*map(references, schema))
    if not isinstance(schema, dict):
        return set()
    found = set().union(*map(references, schema.values()))
    named = schema.get("$ref")
    return found | {named.removeprefix("#/$defs/")} if isinstance(named, str) else found


def main(wheel: Path) -> None:
    """Write the schema anew."""
    with ZipFile(wheel) as opened:
        everything = json.loads(opened.read(MEMBER))["$defs"]
    kept: dict[str, Any] = {}
    wanted = set(KINDS.values())
    while wanted:
        name = wanted.pop()
        kept[name] = bare(everything[name])
        wanted |= references(kept[name]) - kept.keys()
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "kinds": KINDS,
        "$defs": dict(sorted(kept.items())),
    }
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
