"""The cache of compiled modules: the same sources and the same compiler, or it is not asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import hatch_build

NAMES = {"kernel", "log_scan", "usual_manifest"}


class Compiler:
    """Stands for Cython and a C compiler, which take 20 seconds."""

    def __init__(self, sources: Path) -> None:
        self.runs = 0
        self._sources = sources

    def __call__(self, folder: Path) -> dict[Path, Path]:
        self.runs += 1
        folder.mkdir(exist_ok=True)
        modules = {}
        for source in self._sources.glob("pipeline/*/*.pyx"):
            modules[source] = folder / f"{source.stem}.cpython-311-x86_64-linux-gnu.so"
            modules[source].write_text(f"{source.read_text()}, run {self.runs}")
        return modules


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository, and a cache of its own."""
    root = tmp_path / "repository"
    for module in hatch_build.MODULES:
        source = root / (module.replace(".", "/") + ".pyx")
        source.parent.mkdir(parents=True)
        source.write_text(module)
    monkeypatch.setattr(hatch_build, "ROOT", root)
    monkeypatch.setenv("COMPILED_MODULES_CACHE", str(tmp_path / "cache"))
    for name in ("CC", "CFLAGS"):
        monkeypatch.delenv(name, raising=False)
    return root


@pytest.fixture
def compiler(sources: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler(sources)
    monkeypatch.setattr(hatch_build, "compiled", made)
    return made


def built(folder: Path) -> dict[str, str]:
    """The text of each module, by the name of its source."""
    return {source.stem: module.read_text() for source, module in hatch_build.build(folder).items()}


def test_the_same_sources_are_compiled_once(tmp_path: Path, compiler: Compiler) -> None:
    first = built(tmp_path / "a")
    assert first.keys() == NAMES
    assert built(tmp_path / "b") == first
    assert compiler.runs == 1


def test_a_changed_source_is_compiled_anew(
    tmp_path: Path, sources: Path, compiler: Compiler
) -> None:
    built(tmp_path / "a")
    (sources / "pipeline/decode/kernel.pyx").write_text("changed")
    assert built(tmp_path / "b")["kernel"] == "changed, run 2"


@pytest.mark.parametrize(
    ("variable", "value"), [("CFLAGS", "-O0"), ("CC", "/bin/echo another compiler")]
)
def test_another_compiler_or_other_flags_compile_anew(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    built(tmp_path / "a")
    monkeypatch.setenv(variable, value)
    built(tmp_path / "b")
    assert compiler.runs == 2


@pytest.mark.parametrize("variable", ["CC", "COMPILED_MODULES_CACHE"])
def test_the_cache_is_not_asked_without_a_compiler_nor_when_it_is_not_named(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    built(tmp_path / "a")
    monkeypatch.setenv(variable, "/nonexistent/cc" if variable == "CC" else "")
    built(tmp_path / "b")
    assert compiler.runs == 2


def test_builds_that_were_not_used_for_long_go(
    tmp_path: Path, sources: Path, compiler: Compiler
) -> None:
    cache = tmp_path / "cache"
    for number in range(hatch_build.KEPT_BUILDS_MAX + 2):
        (sources / "pipeline/decode/kernel.pyx").write_text(str(number))
        built(tmp_path / str(number))
        for path in cache.iterdir():
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
    assert len(list(cache.iterdir())) == hatch_build.KEPT_BUILDS_MAX
    (sources / "pipeline/decode/kernel.pyx").write_text("2")
    runs = compiler.runs
    built(tmp_path / "again")
    assert compiler.runs == runs
