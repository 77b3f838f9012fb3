"""Builds the compiled modules of the pipeline: in place for development, and into wheels, which
carry the page of `/ui`, too, if it is built or Node.js is there to build it.

`python hatch_build.py` builds them beside their sources. A wheel built where there is Cython and a
C compiler carries them and is for that platform; elsewhere the wheel is `py3-none-any` without, and
pure Python does their work.

With COMPILED_MODULES_CACHE in the environment, what was compiled is kept in that folder, and taken
from there by the next build of the same sources with the same compiler.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
MODULES = tuple(
    ".".join(source.relative_to(ROOT).with_suffix("").parts)
    for source in sorted((ROOT / "pipeline").glob("*/*.pyx"))
)
COMPILE_ARGS = ["-O3", "-g0"]
UI = "api/ui"
CACHE = "COMPILED_MODULES_CACHE"
KEPT_BUILDS_MAX = 8
"""In the cache; the one that was not used for longest goes."""
COMPILER_ANSWERS_WITHIN_S = 30


def source_of(module: str) -> Path:
    """The source that it is built from."""
    return ROOT / (module.replace(".", "/") + ".pyx")


def build(folder: Path) -> dict[Path, Path]:
    """All of them, compiled into `folder` or by an earlier build: where each is, by its source."""
    named = os.environ.get(CACHE)
    key = build_key() if named else None
    if not named or key is None:
        return compiled(folder)
    cache = Path(named)
    kept = cache / key
    if not kept.is_dir():
        keep(compiled(folder), kept)
    os.utime(kept)
    builds = sorted((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(cache))
    for _, stale in builds[:-KEPT_BUILDS_MAX]:
        shutil.rmtree(stale, ignore_errors=True)
    modules = {path.name.partition(".")[0]: path for path in kept.iterdir()}
    return {source: modules[source.stem] for source in map(source_of, MODULES)}


def keep(modules: dict[Path, Path], place: Path) -> None:
    """Copy compiled modules to `place`, which appears with all of them in it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=place.parent))
    for module in modules.values():
        shutil.copy(module, scratch)
    try:
        scratch.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(scratch)
        if not place.is_dir():
            raise


def build_key() -> str | None:
    """The hash of all that decides about the compiled modules; None without a compiler."""
    import Cython
    import setuptools

    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), "--version"]
    try:
        told = subprocess.run(  # noqa: S603 - the compiler that setuptools will start
            command, check=True, capture_output=True, timeout=COMPILER_ANSWERS_WITHIN_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    flags = {name: os.environ.get(name) for name in ("CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED")}
    parts = [compiler, told, flags, sys.version, platform.machine(), platform.libc_ver()]
    parts += [sysconfig.get_config_vars("CFLAGS", "LDSHARED", "EXT_SUFFIX")]
    parts += [Cython.__version__, setuptools.__version__, Path(__file__).read_bytes()]
    parts += [(module, source_of(module).read_bytes()) for module in MODULES]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def compiled(folder: Path) -> dict[Path, Path]:
    """Compile all into `folder`: where each is, by its source."""
    from Cython.Build import cythonize
    from setuptools import Extension
    from setuptools.dist import Distribution

    sources = {module: source_of(module) for module in MODULES}
    extensions = [
        Extension(
            module,
            [str(source)],
            extra_compile_args=COMPILE_ARGS,
            # By this a module is known to be of the source that lies beside it.
            define_macros=[("PYX_SHA256", f'"{hashlib.sha256(source.read_bytes()).hexdigest()}"')],
        )
        for module, source in sources.items()
    ]
    extensions = cythonize(extensions, build_dir=str(folder / "c"), quiet=True)
    distribution = Distribution({"name": "pipeline", "ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "o")
    command.ensure_finalized()
    command.run()
    return {source: Path(command.get_ext_fullpath(module)) for module, source in sources.items()}


def build_if_possible(folder: Path) -> dict[Path, Path]:
    """The same; none, and why on standard error, where something that it takes is missing."""
    try:
        return build(folder)
    except ImportError as error:
        why = f"{error.name} is not installed"
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("setuptools", "distutils"):
            raise  # no compiler to blame
        why = str(error)
    names = ", ".join(MODULES)
    sys.stderr.write(f"{names} are not built; decoding, scrubs and plans will be slow: {why}\n")
    return {}


class CompiledHook(BuildHookInterface):
    """Puts them into a wheel, which then is for this Python and platform only."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files of a wheel are gathered."""
        if version == "editable":
            return  # they are built in place, by make
        self._folder = tempfile.TemporaryDirectory()
        built = build_if_possible(Path(self._folder.name))
        if built:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        for source, module in built.items():
            inside = source.relative_to(ROOT).with_name(module.name)
            build_data["force_include"][str(module)] = str(inside)
        if Path(self.root) == ROOT:  # the executors' wheel has no page
            self._include_page(build_data)

    def _include_page(self, build_data: dict[str, Any]) -> None:
        subprocess.run([sys.executable, ROOT / UI / "build.py"], check=True)  # noqa: S603 - ours
        if (ROOT / UI / "dist").is_dir():
            build_data["force_include"][str(ROOT / UI / "dist")] = f"{UI}/dist"

    def finalize(self, version: str, *_: object) -> None:
        """Called when the wheel is written."""
        if version != "editable":
            self._folder.cleanup()


def main() -> None:
    """Build in place."""
    with tempfile.TemporaryDirectory() as folder:
        for source, module in build_if_possible(Path(folder)).items():
            # Beside it first: a process that has the old one mapped keeps that one.
            fresh = source.with_name(f".{module.name}")
            fresh.write_bytes(module.read_bytes())
            fresh.chmod(0o755)
            fresh.replace(source.with_name(module.name))


if __name__ == "__main__":
    main()
