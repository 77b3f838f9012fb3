"""Builds the compiled kernel of the pipeline: in place for development, and into wheels.

`python hatch_build.py` builds it beside its source. A wheel built where there is Cython and a C
compiler carries it and is for that platform; elsewhere the wheel is `py3-none-any` without it, and
the pure reader does its work.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "pipeline/decode/kernel.pyx"
MODULE = "pipeline.decode.kernel"
COMPILE_ARGS = ["-O3", "-g0"]


def build(folder: Path) -> Path:
    """Compile the kernel into `folder` and say where it is."""
    from Cython.Build import cythonize
    from setuptools import Extension
    from setuptools.dist import Distribution

    # By this the kernel is known to be of the source that lies beside it.
    source = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    extension = Extension(
        MODULE,
        [str(SOURCE)],
        extra_compile_args=COMPILE_ARGS,
        define_macros=[("KERNEL_SOURCE", f'"{source}"')],
    )
    extensions = cythonize([extension], build_dir=str(folder / "c"), quiet=True)
    command = Distribution({"name": MODULE, "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "o")
    command.ensure_finalized()
    command.run()
    return Path(command.get_outputs()[0])


def build_if_possible(folder: Path) -> Path | None:
    """The same; None, and why on standard error, where something that it takes is missing."""
    try:
        return build(folder)
    except ImportError as error:
        why = f"{error.name} is not installed"
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("setuptools", "distutils"):
            raise  # no compiler to blame
        why = str(error)
    sys.stderr.write(f"{MODULE} is not built, and decoding will be slow: {why}\n")
    return None


class KernelHook(BuildHookInterface):
    """Puts the kernel into a wheel, which then is for this Python and platform only."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files of a wheel are gathered."""
        if version == "editable":
            return  # it is built in place, by make
        self._folder = tempfile.TemporaryDirectory()
        built = build_if_possible(Path(self._folder.name))
        if built is not None:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(built)] = f"pipeline/decode/{built.name}"

    def finalize(self, version: str, *_: object) -> None:
        """Called when the wheel is written."""
        if version != "editable":
            self._folder.cleanup()


def main() -> None:
    """Build in place."""
    with tempfile.TemporaryDirectory() as folder:
        built = build_if_possible(Path(folder))
        if built is not None:
            # Beside it first: a process that has the old one mapped keeps that one.
            fresh = SOURCE.with_name(f".{built.name}")
            fresh.write_bytes(built.read_bytes())
            fresh.chmod(0o755)
            fresh.replace(SOURCE.with_name(built.name))


if __name__ == "__main__":
    main()
