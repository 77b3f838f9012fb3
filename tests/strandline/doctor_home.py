"""A node's directory that `strandline doctor` is asked about."""

from __future__ import annotations

import json
from pathlib import Path

from strandline.cli.exit_codes import ExitCode
from strandline.doctor.finding import Finding
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import invoke


class Home:
    """A node's directory; `findings` are what doctor says of it, by check."""

    def __init__(self, path: Path, sections: dict[str, dict[str, object]]) -> None:
        self.path = path
        self.sections = sections
        self.sections["http"] = {}

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def config(self) -> Path:
        process = NodeProcess(self.path, self.sections)
        process.write_config()
        return process.config

    def format(self) -> None:
        assert invoke("format", "--config", self.config).exit_code == 0

    def findings(self, *, code: ExitCode = ExitCode.INCOMPLETE) -> dict[str, Finding]:
        done = invoke("doctor", "--config", self.config, "--json")
        assert done.exit_code == code, done.output
        return {each["check"]: Finding(**each) for each in json.loads(done.stdout)}

    def wrong(self, check: str) -> str:
        """Doctor's advice about `check`, which it must find wrong."""
        found = self.findings()[check]
        assert not found.ok, found
        return found.detail
