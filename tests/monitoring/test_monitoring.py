"""docs/grafana and docs/prometheus use metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from api.metrics.metrics import NodeMetrics
from tests.monitoring.promql import PromqlError, grouped_by, parse

YAML: Any = import_module("yaml")  # it has no types of its own
DOCS = Path(__file__).resolve().parents[2] / "docs"
RULES: list[dict[str, Any]] = [
    rule
    for group in YAML.safe_load((DOCS / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana" / "strandline.json").read_text())
SCRAPED_WITH = {"job", "instance"}
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*", "$__range": "1h"}


def existing() -> dict[str, set[str]]:
    """Names of samples as Prometheus sees them, with their labels."""
    found: dict[str, set[str]] = {"up": set()}
    registry = NodeMetrics().registry
    for collector in set(registry._collector_to_names):
        if isinstance(collector, MetricWrapperBase):
            labels = set(collector._labelnames)
            for name in names_of(collector):
                found[name] = labels
            continue
        for family in collector.collect():
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
            for suffix in suffixes.get(family.type, ("",)):
                labels = {label for sample in family.samples for label in sample.labels}
                found[family.name + suffix] = labels | (
                    {"le"} if family.type == "histogram" else set()
                )
    found["strandline_metadata_current_state"] = {"state"}
    found["strandline_metadata_replica_lag"] = {"node_id"}
    for suffix in ("_bucket", "_sum", "_count"):
        found[f"strandline_metadata_propagation_latency_seconds{suffix}"] = {"node_id", "le"}
    return found


def names_of(metric: MetricWrapperBase) -> list[str]:
    name = metric._name
    if isinstance(metric, Counter):
        return [f"{name}_total"]
    if isinstance(metric, Histogram):
        return [f"{name}_{suffix}" for suffix in ("bucket", "sum", "count")]
    assert isinstance(metric, Gauge)
    return [name]


EXISTING = existing()


def panels() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        if panel["type"] != "row":
            yield panel


def expressions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"]
            for variable, value in VARIABLES.items():
                text = text.replace(variable, value)
            yield panel["title"], text


@pytest.mark.parametrize(("where", "text"), tuple(expressions()))
def test_an_expression_uses_metrics_that_exist_with_labels_that_they_have(
    where: str, text: str
) -> None:
    selected = parse(text)
    assert selected, where
    labels = set(SCRAPED_WITH)
    for each in selected:
        assert each.name in EXISTING, where
        own = EXISTING[each.name] | SCRAPED_WITH
        if each.name.endswith("_bucket"):
            own = own | {"le"}
        assert each.labels <= own, where
        labels |= own
    assert grouped_by(text) <= labels, where


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Strandline[A-Z][A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    for name in ("summary", "action"):
        assert len(rule["annotations"][name]) > 20
    grouped = grouped_by(rule["expr"])
    template_labels = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    own = {label for each in parse(rule["expr"]) for label in EXISTING[each.name]}
    assert template_labels <= own | SCRAPED_WITH
    if grouped:
        assert template_labels <= grouped


def test_alerts_and_panels_have_names_of_their_own() -> None:
    alerts = [rule["alert"] for rule in RULES]
    titles = [panel["title"] for panel in panels()]
    assert len(set(alerts)) == len(alerts)
    assert len(set(titles)) == len(titles)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_panels_do_not_overlap_and_say_what_they_show() -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert cells.setdefault((x, y), panel["title"]) == panel["title"]
    for panel in panels():
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@pytest.mark.parametrize("text", [
    "rate(strandline_x_total)",
    "sum(strandline_x[5m])",
    "strandline_x{what=copying}",
    "strandline_x{what=\"copying\"",
    "nonsense(strandline_x)",
    "strandline_x >",
    "strandline_x strandline_y",
    "strandline_x[5m] + 1",
    "strandline_x # 5",
])  # fmt: skip
def test_what_is_no_expression_is_found(text: str) -> None:
    with pytest.raises(PromqlError):
        parse(text)


def test_an_expression_is_read_whole() -> None:
    text = 'sum by (a) (rate(m_total{b="x", c!~"y|z"}[5m])) / -2 > bool 0.5 and on (a) n or time()'
    assert [(each.name, each.labels) for each in parse(text)] == [
        ("m_total", frozenset({"b", "c"})),
        ("n", frozenset()),
    ]
    assert grouped_by(text) == {"a"}
