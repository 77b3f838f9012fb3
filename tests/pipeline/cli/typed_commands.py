"""`strandline pipeline ...` several times in one process, which starts one Java machine only.

Standard input: a list of argument lists as JSON. Prints a list of [exit code, output, errors].
"""

from __future__ import annotations

import json
import sys

from typer.testing import CliRunner

from pipeline.cli.main import app


def main() -> None:
    told = []
    for arguments in json.load(sys.stdin):
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        told.append((done.exit_code, done.stdout, done.stderr))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
