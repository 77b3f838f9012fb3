"""What was typed wins over what the environment happens to have."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.options import tier_options

NODE = "http://strand-1:9480"


def test_a_store_that_is_named_is_read_whatever_node_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STRANDLINE_URL", NODE)
    found = tier_options(None, "file:///backup", NODE, Path("token"))
    assert found == {"strandline.store": "file:///backup"}


def test_a_node_that_is_typed_beside_a_store_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDLINE_URL", raising=False)
    found = tier_options(None, "file:///backup", NODE, None)
    assert found == {"strandline.store": "file:///backup", "strandline.url": NODE}
