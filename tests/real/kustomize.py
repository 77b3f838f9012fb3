"""kustomize, which builds what is in deploy/kubernetes, from its Go module."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.real.toolbox import only_one, require_program, tools_dir

KUSTOMIZE_VERSION = "v5.8.1"
BUILD_DEADLINE_S = 600


def kustomize_program() -> Path:
    """The path of the program; the first call on a machine builds it (a minute)."""
    folder = tools_dir() / f"kustomize-{KUSTOMIZE_VERSION}"
    program = folder / "kustomize"
    module = f"sigs.k8s.io/kustomize/kustomize/v5@{KUSTOMIZE_VERSION}"
    with only_one("kustomize"):
        if not program.exists():
            subprocess.run(
                [require_program("go"), "install", module],
                env=os.environ | {"GOBIN": str(folder), "GOFLAGS": "-mod=mod"},
                cwd=tools_dir(),
                check=True,
                timeout=BUILD_DEADLINE_S,
            )
    return program
