"""`strandline doctor`: findings as a table or as JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.config_option import ConfigOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, print_json, print_table
from strandline.doctor.doctor import examine
from strandline.doctor.finding import Finding
from strandline.node import event_loop
from strandline.settings.loading import load_settings


def doctor_command(
    config: ConfigOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> int:
    """Check directories, broker, stores and permissions; say what to do about each finding.

    Writes and deletes a few probe objects under the store's prefix. Exit code 8 if anything is
    wrong.

    Example: `strandline doctor --config strandline.toml`
    """
    findings = event_loop.run(examine(load_settings(config).settings))
    if json:
        print_json([{"check": f.check, "ok": f.ok, "detail": f.detail} for f in findings])
    else:
        print_table(["check", "", "detail"], [_row(finding) for finding in findings])
        wrong = sum(not finding.ok for finding in findings)
        console.print(f"{wrong} of {len(findings)} checks found something wrong")
    return ExitCode.OK if all(finding.ok for finding in findings) else ExitCode.INCOMPLETE


def _row(finding: Finding) -> tuple[str, str, str]:
    return finding.check, "ok" if finding.ok else "WRONG", finding.detail
