"""Each setting that a document or a message names exists, in a node's file or in the cluster's
settings; the rest of such names is Kafka's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm.cluster_settings.known_settings import Setting
from strandline.settings.settings import Settings
from tests.test_tidy import PACKAGES, REPOSITORY, relative, tracked

KEYS = {
    name: set(fields)
    for name, section in Settings.model_fields.items()
    if (fields := getattr(section.annotation, "model_fields", None))
}
NAMED = re.compile(rf"(?<![\w./*-])({'|'.join(KEYS)})\.([a-z][a-z0-9_]*)(?![\w(/.-])")
OTHERS = {
    "retention.ms", "retention.bytes", "log.dirs", "node.id", "metadata.version",  # Kafka's
    "http.request", "http.disconnect",  # ASGI's
}  # fmt: skip
FILE_NAME = re.compile(r"\.(py|txt|env|yaml)$")


def unknown(text: str) -> set[str]:
    found = {match[0] for match in NAMED.finditer(text) if match[2] not in KEYS[match[1]]}
    return {name for name in found - OTHERS - set(Setting) if not FILE_NAME.search(name)}


def texts(path: Path) -> Iterator[str]:
    """The strings of a source file, if anything in it may be an unknown name."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)) if unknown(source) else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("name", [relative(path) for path in tracked("*.md", ":!tests")])
def test_settings_in_documents_exist(name: str) -> None:
    assert unknown((REPOSITORY / name).read_text()) == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_settings_in_messages_exist(package: str) -> None:
    found = {
        (relative(path), name)
        for path in tracked(f"{package}/**/*.py")
        for text in texts(path)
        for name in unknown(text)
    }
    assert found == set()


def test_what_does_not_exist_is_found() -> None:
    assert unknown("raise copier.batch_bytes_max, or `copier.batch_size`.") == {"copier.batch_size"}
