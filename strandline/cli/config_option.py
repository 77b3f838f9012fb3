"""`--config`, the option of commands that read the settings themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="STRANDLINE_CONFIG", help="Settings file (TOML)."),
]
