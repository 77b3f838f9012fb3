"""A node that copies two captured topics into MinIO, and is asked by the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rsm_backends.store_config import StoreConfig
from strandline.cli.exit_codes import ExitCode
from tests.e2e.bucket import store_settings
from tests.e2e.node_process import NodeProcess, Sections
from tests.strandline.command import CAPTURED, invoke
from tests.strandline.conftest import COPY_DEADLINE_S, copied_segments

TOPICS = ("codecs", "events")
SEGMENTS = sum(
    len(list(path.glob("*.log"))) - 1
    for path in CAPTURED.glob("*")
    if path.name.rpartition("-")[0] in TOPICS
)
"""Those of its segments that are sealed."""


@contextmanager
def captured_node(
    home: Path, config: StoreConfig, more: Sections | None = None
) -> Iterator[NodeProcess]:
    """One that has copied everything. What is deleted goes half a second later, with its row.
    `more` settings are sections of their own.
    """
    home.mkdir(exist_ok=True)
    sections: Sections = {
        "kafka": {"log_dirs": [str(CAPTURED)]},
        "topics": {"include": list(TOPICS)},
        "stores.main": store_settings(home, config),
        "copier": {"interval_s": 0.5, "upload_margin_s": 0.5},
        "retention": {"delete_delay_s": 0.5},
        "http": {"anonymous_role": "admin"},
        **(more or {}),
    }
    with NodeProcess(home / "node", sections) as node:
        node.wait_until(
            lambda: copied_segments(node.url) == SEGMENTS, "copies", deadline_s=COPY_DEADLINE_S
        )
        yield node


def ask(node: NodeProcess, *arguments: object, code: ExitCode | None = ExitCode.OK) -> Any:
    """Output of the command with `--json`, parsed. The command has to end with `code`;
    None: any.
    """
    done = invoke(*arguments, "--json", env={"STRANDLINE_URL": node.url})
    assert code in (None, done.exit_code), done.stdout + done.stderr
    return json.loads(done.stdout)


def uploads(s3: Any, bucket: str, key: str) -> int:
    """Unfinished ones of a key; MinIO lists them by exact key only."""
    listed = s3.list_multipart_uploads(Bucket=bucket, Prefix=key)
    return len(listed.get("Uploads", ()))
