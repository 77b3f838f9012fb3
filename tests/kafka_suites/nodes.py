"""`python -m tests.kafka_suites.nodes STORE [--without-brokers] HOME CLUSTER_ID
ID=LOG_DIR[,LOG_DIR]...`: a node beside each broker of one of Kafka's tests. Without brokers each
leads what is in its log directories. The file STORE has a node's settings for the store, as JSON;
each HOME has a prefix of its own there, its last name.

The log directories are formatted as the test's brokers would do it, who keep what they find.

Prints a line `ID URL` for each node once all are ready. They are killed when standard input ends,
so also when the test's process dies.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from strandline.node import ambient
from tests.e2e.node_process import Sections
from tests.e2e.node_quorum import NodeQuorum

SECTIONS: Sections = {
    "http": {"anonymous_role": "admin"},
    "copier": {
        "interval_s": 0.5,
        "leadership_interval_s": 0.2,
        "upload_deadline_s": 15,
        "upload_margin_s": 1,
        "backoff_base_s": 0.2,
        "backoff_max_s": 2,
    },
    "retention": {"interval_s": 1, "delete_delay_s": 0.5, "trash_s": 0},
    "hold": {"dirs": []},  # nothing beside the folders of Kafka's tests
}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("--without-brokers", action="store_true")
    parser.add_argument("home", type=Path)
    parser.add_argument("cluster_id")
    parser.add_argument("brokers", nargs="+")
    asked = parser.parse_args()
    kafka: dict[str, dict[str, object]] = {}
    for broker in asked.brokers:
        number, _, log_dirs = broker.partition("=")
        for log_dir in log_dirs.split(","):
            format_log_dir(Path(log_dir), asked.cluster_id, number)
        kafka[number] = {"log_dirs": log_dirs.split(",")}
        if not asked.without_brokers:
            kafka[number]["broker"] = "announced"
    store = json.loads(asked.store.read_text()) | {"prefix": f"{asked.home.name}/"}
    sections = {**SECTIONS, "stores.main": store}
    founders = [int(number) for number in kafka]
    with NodeQuorum(asked.home, asked.cluster_id, sections, kafka, founders) as quorum:
        for node_id, node in quorum.nodes.items():
            print(node_id, node.url)
        sys.stdout.flush()
        sys.stdin.read()


def format_log_dir(log_dir: Path, cluster_id: str, broker_id: str) -> None:
    """A node starts beside a formatted directory only."""
    meta = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": broker_id,
        "directory.id": str(ambient.new_uuid()),
    }
    log_dir.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{key}={value}\n" for key, value in meta.items())
    (log_dir / "meta.properties").write_text(lines)


if __name__ == "__main__":
    main()
