"""Scrapes a node's real /metrics as Prometheus does, and says which rules would fire."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from api.http.context import ApiContext
from api.metrics.metrics import NodeMetrics
from tests.api.fakes import FakeNode, make_node
from tests.monitoring.evaluator import Samples, duration_s, evaluate
from tests.rlm.one_node import Node

YAML: Any = import_module("yaml")  # it has no types of its own
ALERTS = Path(__file__).resolve().parents[2] / "docs" / "prometheus" / "alerts.yml"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in YAML.safe_load(ALERTS.read_text())["groups"]
    for rule in group["rules"]
}


class Scraper:
    """Of one node. `client` asks it; time is the caller's, in seconds."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._samples = Samples()
        self._times: list[float] = []

    async def scrape(self, at_s: float) -> None:
        """Whatever goes wrong is `up` 0, as it is for Prometheus."""
        self._times.append(at_s)
        where = {"job": "strandline", "instance": "node-1"}
        try:
            answer = await self._client.get("/metrics")
            answer.raise_for_status()
        except httpx.HTTPError:
            self._samples.add(at_s, "up", where.items(), 0)
            return
        self._samples.add(at_s, "up", where.items(), 1)
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                labels = sample.labels | where
                self._samples.add(at_s, sample.name, labels.items(), sample.value)

    def fires(self, alert: str) -> bool:
        """Whether the rule's expression held at each scrape of its `for`, and now."""
        rule = RULES[alert]
        for_s, now_s = duration_s(rule.get("for", "0s")), self._times[-1]
        if self._times[0] > now_s - for_s:
            return False
        held = [t for t in self._times if t >= now_s - for_s]
        return all(evaluate(rule["expr"], self._samples, each) for each in held)

    def firing(self) -> set[str]:
        """All that fire now."""
        return {alert for alert in RULES if self.fires(alert)}


class WatchedNode:
    """A node of the tests with its metrics, wired as `strandline.node.running` wires them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.metrics = NodeMetrics()
        self._told = 0
        if node.hold is not None:
            self.metrics.hold.read_from(node.hold.usage)
        self.metrics.repair.watch(node.repairs)
        fake = make_node()
        context: ApiContext = replace(
            fake.context,
            manager=node.metadata,
            rlm=node.remote_log,
            answers=node.parts.answers,
            reads=node.parts.reads,
            switches=node.parts.given.switches,
            settings=node.parts.settings,
            metrics=self.metrics,
        )
        self.client = FakeNode(context, fake.manager, fake.rlm, fake.quorum).client()
        self.scraper = Scraper(self.client)

    async def run(self, seconds: float, *, every_s: float = 30.0) -> None:
        """Let time pass, and scrape meanwhile."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            for event in self._node.events[self._told :]:
                self.metrics.copy.on_event(event)
                self.metrics.hold.on_event(event)
            self._told = len(self._node.events)
            await self.scraper.scrape(loop.time())
            await asyncio.sleep(every_s)

    def fires(self, alert: str) -> bool:
        return self.scraper.fires(alert)
