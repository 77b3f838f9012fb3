"""`--config`, which every command has that reads the settings itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="STRANDLINE_CONFIG", help="Settings file (TOML)."),
]
