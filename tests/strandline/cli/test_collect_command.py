"""`strandline collect` against a real node: it counts what is there, and leaves it there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import CAPTURED_SEGMENTS, invoke
from tests.strandline.conftest import COPY_DEADLINE_S, copied_segments, sections


def test_a_tier_at_rest_is_as_the_metadata_has_it(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    changed = sections(tier) | {"http": {"anonymous_role": "admin"}}
    with NodeProcess(tmp_path, changed) as node:
        node.wait_until(
            lambda: copied_segments(node.url) == CAPTURED_SEGMENTS,
            "everything to be copied",
            deadline_s=COPY_DEADLINE_S,
        )
        env = {"STRANDLINE_URL": node.url}
        looked = invoke("collect", "--json", env=env)
        assert looked.exit_code == ExitCode.OK, looked.stderr
        before = counts(json.loads(looked.stdout))
        assert before["live"] == 3 * CAPTURED_SEGMENTS
        assert (before["orphan"], before["foreign"], before["own"] >= 1) == (0, 0, True)
        segment = next(path for path in tier.rglob("*.log") if path.is_file())
        applied = invoke("collect", "--apply", env=env)
        assert applied.exit_code == ExitCode.OK, applied.stderr
        assert "deleted: 0 objects, 0 B" in applied.stdout
        assert segment.exists()
        told = json.loads(invoke("audit", "--action", "collection", "--json", env=env).stdout)
        assert [(line["by"], line["why"]) for line in told] == [("anonymous", "0 orphans deleted")]


def counts(job: dict[str, Any]) -> dict[str, int]:
    return {name: count["objects"] for name, count in job["found"].items()}
