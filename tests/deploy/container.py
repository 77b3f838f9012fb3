"""A container of a built manifest, with what its image and its ConfigMaps bring."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from strandline.settings.loading import load_settings
from strandline.settings.settings import Settings
from tests.real.dockerfile import assignments, instructions
from tests.real.toolbox import REPOSITORY

YAML: Any = import_module("yaml")  # it has no types of its own
IMAGE = instructions((REPOSITORY / "Dockerfile").read_text())
POD = {"metadata.name": "kafka-1", "metadata.namespace": "streams"}

Manifest = dict[str, Any]


def documents(text: str) -> list[Manifest]:
    """The manifests of a YAML stream, as JSON has them."""
    return [json.loads(json.dumps(each)) for each in YAML.safe_load_all(text) if each]


def image_environment() -> dict[str, str]:
    """What the image sets."""
    return {
        name: value
        for step in IMAGE
        if step.name == "ENV"
        for name, value in assignments(step.text).items()
    }


@dataclass(frozen=True)
class Node:
    """The container `strandline` of one StatefulSet among manifests that belong together."""

    manifests: list[Manifest]
    stateful_set: Manifest

    @property
    def pod(self) -> Manifest:
        found: Manifest = self.stateful_set["spec"]["template"]["spec"]
        return found

    @property
    def container(self) -> Manifest:
        (found,) = (each for each in self.pod["containers"] if each["name"] == "strandline")
        assert isinstance(found, dict)
        return found

    def of_kind(self, kind: str) -> list[Manifest]:
        return [each for each in self.manifests if each["kind"] == kind]

    def environment(self) -> dict[str, str]:
        """As the process sees it; what comes from ConfigMaps is named only."""
        seen = image_environment()
        for each in self.container["env"]:
            source = each.get("valueFrom", {})
            if "fieldRef" in source:
                seen[each["name"]] = POD[source["fieldRef"]["fieldPath"]]
            elif "configMapKeyRef" in source:
                seen[each["name"]] = "from a ConfigMap"
            else:
                value = each["value"]
                for name, earlier in seen.items():
                    value = value.replace(f"$({name})", earlier)
                assert "$(" not in value, f"{each['name']} names what is set behind it: {value}"
                seen[each["name"]] = value
        return seen

    def mounts(self) -> dict[Path, Manifest]:
        """Where each volume is mounted: the mount, and its volume under `volume`."""
        volumes = {each["name"]: each for each in self.pod["volumes"]}
        for claim in self.stateful_set["spec"]["volumeClaimTemplates"]:
            volumes[claim["metadata"]["name"]] = {"claim": claim}
        return {
            Path(each["mountPath"]): each | {"volume": volumes[each["name"]]}
            for each in self.container["volumeMounts"]
        }

    def mount_of(self, path: Path) -> Manifest:
        """What `path` lies in."""
        mounts = self.mounts()
        return next(mounts[parent] for parent in path.parents if parent in mounts)

    def files(self) -> dict[str, str]:
        """The ConfigMap beside the settings file that the image reads."""
        folder = self.mounts()[Path(self.environment()["STRANDLINE_CONFIG"]).parent]
        name = folder["volume"]["configMap"]["name"]
        (found,) = (each for each in self.of_kind("ConfigMap") if each["metadata"]["name"] == name)
        files: dict[str, str] = found["data"]
        return files

    def settings(self, folder: Path) -> Settings:
        """By the node's own loader; `folder` is for the settings file."""
        environment = self.environment()
        file = folder / Path(environment["STRANDLINE_CONFIG"]).name
        file.write_text(self.files()[file.name])
        return load_settings(file, environment).settings
