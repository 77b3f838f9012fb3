"""deploy/kubernetes as kustomize builds it: valid for Kubernetes, and true to node and image."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from api.routes import health
from rlm.local_log.hold_beside import sibling
from strandline.doctor import host as doctor_host
from strandline.doctor.private_files import private_files
from strandline.settings.settings import Settings
from strandline.settings.voter_text import parse_address, parse_peer
from tests.deploy.container import IMAGE, YAML, Manifest, Node, documents
from tests.real.kustomize import kustomize_program
from tests.real.toolbox import REPOSITORY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]

DEPLOY = REPOSITORY / "deploy"
jsonschema: Any = import_module("jsonschema")  # it has no types of its own
SCHEMA = json.loads((REPOSITORY / "tests/data/kubernetes-1.37.0/schema.json").read_text())
KAFKA = Path(__file__).parent / "kafka" / "kafka.yaml"
MEMORY = {"Mi": 1 << 20, "Gi": 1 << 30}
NODES = ["sidecar", "observer"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """The README's kustomization, over a StatefulSet of brokers and a checkout beside it."""
    folder = tmp_path_factory.mktemp("built")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", (DEPLOY / "README.md").read_text(), re.M | re.S)
    (folder / "kustomization.yaml").write_text(text)
    shutil.copy(KAFKA, folder)
    shutil.copytree(DEPLOY, folder / "strandline" / "deploy")
    done = subprocess.run(
        [kustomize_program(), "build", folder], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


@pytest.fixture(params=NODES)
def node(built: list[Manifest], request: pytest.FixtureRequest) -> Node:
    name = {"sidecar": "kafka", "observer": "strandline-observer"}[request.param]
    (found,) = (
        each for each in built if each["kind"] == "StatefulSet" and each["metadata"]["name"] == name
    )
    return Node(built, found)


@pytest.fixture
def settings(node: Node, tmp_path: Path) -> Settings:
    return node.settings(tmp_path)


def test_kubernetes_takes_every_manifest(built: list[Manifest]) -> None:
    kinds: dict[str, str] = SCHEMA["kinds"]
    seen = [f"{each['apiVersion']} {each['kind']}" for each in built]
    assert set(seen) == set(kinds), "the schema is for other kinds; capture it anew"
    for kind, manifest in zip(seen, built, strict=True):
        schema = {"$ref": f"#/$defs/{kinds[kind]}", "$defs": SCHEMA["$defs"]}
        jsonschema.Draft202012Validator(schema).validate(manifest)


def test_the_schema_refuses_what_kubernetes_would(built: list[Manifest]) -> None:
    (budget, *_) = (each for each in built if each["kind"] == "PodDisruptionBudget")
    schema = {
        "$ref": f"#/$defs/{SCHEMA['kinds']['policy/v1 PodDisruptionBudget']}",
        "$defs": SCHEMA["$defs"],
    }
    misspelt = budget | {"spec": budget["spec"] | {"maxUnavailabel": 1}}
    assert not jsonschema.Draft202012Validator(schema).is_valid(misspelt)


def test_the_broker_keeps_all_it_had(built: list[Manifest]) -> None:
    (before,) = (each for each in documents(KAFKA.read_text()) if each["kind"] == "StatefulSet")
    (after,) = (
        each
        for each in built
        if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "kafka"
    )

    def kept(was: Any, is_now: Any, where: str) -> None:
        if isinstance(was, dict):
            for name, value in was.items():
                kept(value, is_now[name], f"{where}.{name}")
        elif isinstance(was, list):
            for value in was:
                assert value in is_now, where
        else:
            assert was == is_now, where

    kept(before, after, "")


def test_the_settings_name_what_is_mounted(node: Node, settings: Settings) -> None:
    data = node.mount_of(settings.node.data_dir)
    assert "claim" in data["volume"]
    assert not data.get("readOnly")
    (volume,) = {step.text for step in IMAGE if step.name == "VOLUME"}
    assert data["mountPath"] == volume
    for log_dir in settings.kafka.log_dirs:
        mount = node.mount_of(log_dir)
        assert mount["name"] == "data", "the volume of the broker"
        assert not mount.get("readOnly"), "links lie beside the log directory"
        assert sibling(log_dir).is_relative_to(mount["mountPath"]), "and on the same mount"
        assert log_dir not in node.mounts()
    tmp = node.mounts()[Path("/tmp")]
    assert "emptyDir" in tmp["volume"]


def test_secrets_come_from_files_of_a_secret(node: Node, settings: Settings) -> None:
    files = private_files(settings)
    assert set(files) == {
        "http.tls_key_file",
        "quorum.secret_file",
        "quorum.tls_key_file",
        "stores.main.credentials_file",
    }
    assert settings.http.tokens_file is not None
    for path in [*files.values(), settings.http.tokens_file]:
        mount = node.mount_of(path)
        assert mount["readOnly"] is True
        assert mount["volume"]["secret"]["defaultMode"] == 0o440
    for each in node.container["env"]:
        assert "secretKeyRef" not in each.get("valueFrom", {}), "a secret in a variable"


def test_the_probes_ask_routes_that_need_no_token_where_the_node_listens(
    node: Node, settings: Settings
) -> None:
    routes = {route.path for route in health.router.routes if isinstance(route, APIRoute)}
    ports = {each["name"]: each["containerPort"] for each in node.container["ports"]}
    probes = {name: node.container[name] for name in node.container if name.endswith("Probe")}
    assert {probe["httpGet"]["path"] for probe in probes.values()} <= routes - {"/metrics"}
    for probe in probes.values():
        asked = probe["httpGet"]
        assert ports[asked["port"]] == settings.http.port
        assert (asked["scheme"] == "HTTPS") is (settings.http.tls_key_file is not None)
    assert probes["livenessProbe"]["httpGet"]["path"] == "/healthz"
    (exposed,) = (int(step.text) for step in IMAGE if step.name == "EXPOSE")
    assert exposed == settings.http.port
    assert settings.http.host == "0.0.0.0"


def test_a_node_that_is_not_ready_takes_no_broker_out_of_its_service(built: list[Manifest]) -> None:
    ready = {
        each["metadata"]["name"]: [
            container.get("readinessProbe", {}).get("httpGet", {}).get("path")
            for container in each["spec"]["template"]["spec"]["containers"]
            if container["name"] == "strandline"
        ]
        for each in built
        if each["kind"] == "StatefulSet"
    }
    assert ready == {"kafka": [None], "strandline-observer": ["/readyz"]}


def test_the_quorums_addresses_are_names_of_pods(node: Node, settings: Settings) -> None:
    quorum = settings.quorum
    _, port = parse_address(quorum.listen, field="quorum.listen")
    host, advertised = parse_address(quorum.advertised, field="quorum.advertised")
    assert advertised == port
    assert port in {each["containerPort"] for each in node.container["ports"]}
    service = node.stateful_set["spec"]["serviceName"]
    assert host == f"kafka-1.{service}.streams.svc"
    (headless,) = (each for each in node.of_kind("Service") if each["metadata"]["name"] == service)
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    peers = [parse_peer(each, field="quorum.bootstrap") for each in quorum.bootstrap]
    assert peers == [(number, f"kafka-{number}.kafka.streams.svc", port) for number in range(3)]


def test_no_service_of_the_namespace_becomes_an_unknown_setting(node: Node) -> None:
    assert node.pod["enableServiceLinks"] is False


def test_the_node_may_do_nothing_that_it_need_not(node: Node) -> None:
    context = node.pod.get("securityContext", {}) | node.container["securityContext"]
    (made,) = (
        re.search(r"useradd --uid (\d+)", step.text) for step in IMAGE if "useradd" in step.text
    )
    assert made is not None
    beside = [each for each in node.pod["containers"] if each["name"] == "kafka"]
    broker = {each["securityContext"]["runAsUser"] for each in beside}
    assert {context["runAsUser"]} == {context["runAsGroup"]} == (broker or {int(made[1])})
    assert context["runAsNonRoot"] is context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "fsGroup" in node.pod["securityContext"], "nobody hands it the secrets"


def test_the_memory_limit_is_enough_for_doctor(
    node: Node, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = node.container["resources"]["limits"]["memory"]
    limit_bytes = int(limit[:-2]) * MEMORY[limit[-2:]]
    monkeypatch.setattr(doctor_host, "memory_limit_bytes", lambda: (limit_bytes, "the pod"))
    finding = doctor_host.check_memory(settings)
    assert finding.ok, finding.detail


def test_each_budget_and_service_selects_the_pods_of_one_stateful_set(
    built: list[Manifest],
) -> None:
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in built
        if each["kind"] == "StatefulSet"
    }
    budgets = [
        each["spec"]["selector"]["matchLabels"]
        for each in built
        if each["kind"] == "PodDisruptionBudget"
    ]
    selectors = budgets + [each["spec"]["selector"] for each in built if each["kind"] == "Service"]
    for selector in selectors:
        chosen = [name for name, labels in pods.items() if selector.items() <= labels.items()]
        assert len(chosen) == 1, selector
    assert sorted(map(str, budgets)) == sorted(map(str, pods.values()))


def test_the_image_is_this_release(built: list[Manifest]) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    written = {
        container["image"]
        for file in ("sidecar/sidecar.yaml", "observer/observer.yaml")
        for container in YAML.safe_load((DEPLOY / "kubernetes" / file).read_text())["spec"][
            "template"
        ]["spec"]["containers"]
    }
    assert written == {f"strandline:{version}"}
    named = {
        container["image"]
        for each in built
        if each["kind"] == "StatefulSet"
        for container in each["spec"]["template"]["spec"]["containers"]
        if container["name"] == "strandline"
    }
    assert named == {f"registry.example.com/strandline:{version}"}


def test_the_start_scripts_are_what_the_containers_run(node: Node) -> None:
    shell, script = node.container["command"]
    assert os.path.basename(shell) == "sh"
    assert Path(script).name in node.files()
    assert Path(script).parent in node.mounts()
