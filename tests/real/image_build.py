"""Builds the project's image without a daemon: each step of the Dockerfile in a clean root.

A step that changes files is a layer, a folder that lies over the ones before (overlayfs), under a
name that is the hash of all that went into it, as in Docker's own cache: a second build runs only
what changed. The base images are one clean Debian (`tests/real/debian_root.py`). Needs root.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.real.debian_root import debian_root
from tests.real.dockerfile import Instruction, assignments, instructions, is_in_context
from tests.real.toolbox import REPOSITORY, only_one, tools_dir

STEP_DEADLINE_S = 600
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Docker's own, where a base image sets none."""
_BUILD_VARIABLES = ("PIP_",)
"""What a step may take from this machine's environment: where packages come from."""

_ENTER = """
set -e
mount -t overlay overlay -o "$OVERLAY" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount --bind /etc/resolv.conf "$ROOT/etc/resolv.conf"
mount --bind /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/ca-certificates.crt"
while [ -n "${1:-}" ]; do
  mkdir -p "$ROOT$2"; mount --bind "$1" "$ROOT$2"
  [ "$3" = rw ] || mount -o remount,bind,ro "$ROOT$2"
  shift 3
done
shift
exec chroot ${CHROOT_USER:+--userspec=$CHROOT_USER} "$ROOT" /bin/sh -c 'cd "$0" && exec "$@"' "$@"
"""


@dataclass
class Image:
    """A stage as far as it is built: its layers, oldest first, and what a container starts with."""

    key: str
    layers: list[Path]
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    health_check: tuple[str, ...] = ()

    def path(self, inside: str) -> Path | None:
        """Where a file of the image is outside of it: in its newest layer that has it."""
        for layer in reversed(self.layers):
            found = layer / inside.lstrip("/")
            if found.exists() or found.is_symlink():
                return found
        return None


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine that a container sees at `inside`."""

    outside: Path
    inside: str
    writable: bool = False


def build_image(repository: Path = REPOSITORY) -> Image:
    """The last stage of the Dockerfile. RuntimeError with the step's output when one fails."""
    folder = tools_dir() / "image-layers"
    folder.mkdir(exist_ok=True)
    with only_one("image-layers"):
        build = _Build(repository, folder)
        image = build.run()
        for stale in set(folder.iterdir()) - build.used:
            shutil.rmtree(stale, ignore_errors=True)
    return image


def start_in(
    image: Image,
    work: Path,
    command: Sequence[str],
    *,
    mounts: Sequence[Mount] = (),
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start `command` as the image's user in a container on this machine's network.

    The process is the command's own: signals reach it. `work` takes what the container writes.
    """
    for each in ("upper", "work", "root"):
        (work / each).mkdir(parents=True, exist_ok=True)
    return _entered(
        image, work / "upper", work, command,
        environment={**image.environment, **(environment or {})}, mounts=mounts,
    )  # fmt: skip


class _Build:
    """One build: the stages so far."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self.used: set[Path] = set()
        self._repository = repository
        self._folder = folder
        self._ignore = (repository / ".dockerignore").read_text().splitlines()
        self._stages: dict[str, Image] = {}

    def run(self) -> Image:
        image: Image | None = None
        for each in instructions((self._repository / "Dockerfile").read_text()):
            if each.name == "FROM":
                image = Image(f"{debian_root()}", [debian_root()])
                self._stages[each.words[-1]] = image
            else:
                assert image is not None, "the first instruction is FROM"
                self._step(image, each)
        assert image is not None
        return image

    def _step(self, image: Image, step: Instruction) -> None:
        match step.name:
            case "RUN":
                self._layer(
                    image, step.text, lambda upper, work: self._ran(image, upper, work, step)
                )
            case "COPY":
                self._copy(image, step)
            case "ENV":
                for name, value in assignments(step.text).items():
                    before = image.environment.get("PATH", PATH)
                    image.environment[name] = value.replace("$PATH", before)
            case "WORKDIR":
                image.workdir = step.text
                made = step.text.lstrip("/")
                self._layer(image, step.text, lambda upper, _: (upper / made).mkdir(parents=True))
            case "USER":
                image.user = step.text
            case "HEALTHCHECK":
                image.health_check = step.command
            case "ENTRYPOINT":
                image.entrypoint = step.command
            case "CMD":
                image.command = step.command

    def _ran(self, image: Image, upper: Path, work: Path, step: Instruction) -> None:
        passed = {
            name: value for name, value in os.environ.items() if name.startswith(_BUILD_VARIABLES)
        }
        process = _entered(
            image, upper, work, ("/bin/sh", "-c", step.text),
            environment={"PATH": PATH, **passed, **image.environment},
        )  # fmt: skip
        output, _ = process.communicate(timeout=STEP_DEADLINE_S)
        if process.returncode != 0:
            raise RuntimeError(f"RUN {step.text} ended {process.returncode}: {output[-4000:]}")

    def _copy(self, image: Image, step: Instruction) -> None:
        *sources, target = [word for word in step.words if not word.startswith("--from=")]
        place = os.path.normpath(os.path.join(image.workdir, target)).lstrip("/")
        into_folder = target.endswith("/") or target in (".", "./")
        if step.text.startswith("--from="):
            stage = self._stages[step.words[0].removeprefix("--from=")]
            (source,) = sources
            self._layer(
                image, f"{stage.key} {step.text}",
                lambda upper, work: _copied_from(stage, source, upper / place, work),
            )  # fmt: skip
            return
        files = {source: self._context_files(source) for source in sources}
        hashed = hashlib.sha256()
        for path in (path for each in files.values() for path in each):
            hashed.update(f"{path}\0".encode() + (self._repository / path).read_bytes())

        def copy(upper: Path, _: Path) -> None:
            for source, paths in files.items():
                for path in paths:
                    under = os.path.relpath(path, source)
                    name = Path(path).name if under == "." else under
                    to = upper / place if under == "." and not into_folder else upper / place / name
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(self._repository / path, to)

        self._layer(image, f"{step.text} {hashed.hexdigest()}", copy)

    def _context_files(self, source: str) -> list[str]:
        """Files of the build context at or below `source`; an empty answer fails as Docker does."""
        start = self._repository / source
        paths = [start] if start.is_file() else sorted(p for p in start.rglob("*") if p.is_file())
        names = [path.relative_to(self._repository).as_posix() for path in paths]
        kept = [name for name in names if is_in_context(name, self._ignore)]
        if not kept:
            raise RuntimeError(f"COPY {source}: not in the build context, see .dockerignore")
        return kept

    def _layer(self, image: Image, what: str, make: Callable[[Path, Path], object]) -> None:
        """Add the layer that `make(upper, work)` fills, unless it was made before."""
        image.key = hashlib.sha256(f"{image.key}\n{what}".encode()).hexdigest()
        layer = self._folder / image.key
        if not layer.exists():
            with tempfile.TemporaryDirectory(dir=self._folder.parent, prefix="layer-") as folder:
                work = Path(folder)
                for each in ("upper", "work", "root"):
                    (work / each).mkdir(mode=0o755)
                make(work / "upper", work)
                (work / "upper").rename(layer)
        self.used.add(layer)
        image.layers.append(layer)


def _overlay(image: Image, upper: Path, work: Path) -> str:
    lower = ":".join(str(layer) for layer in reversed(image.layers))
    return f"lowerdir={lower},upperdir={upper},workdir={work / 'work'}"


def _entered(
    image: Image,
    upper: Path,
    work: Path,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    mounts: Sequence[Mount] = (),
) -> subprocess.Popen[str]:
    """`command` in a mount namespace of its own, its root the image with `upper` on top."""
    mounted = [
        word
        for each in mounts
        for word in (str(each.outside), each.inside, "rw" if each.writable else "ro")
    ]
    return subprocess.Popen(
        [
            *("unshare", "--mount", "/bin/sh", "-c", _ENTER, "enter"),
            *(*mounted, "", image.workdir, *command),
        ],
        env={
            "PATH": PATH,
            **environment,
            "OVERLAY": _overlay(image, upper, work),
            "ROOT": str(work / "root"),
            "CHROOT_USER": image.user and f"{image.user}:{image.user}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _copied_from(stage: Image, source: str, target: Path, work: Path) -> None:
    """What the other stage has at `source`, by `cp -a` from its own root."""
    target.parent.mkdir(parents=True, exist_ok=True)
    (work / "from").mkdir()
    Path(work / "nothing").mkdir()
    (work / "nothing" / "work").mkdir()
    script = 'mount -t overlay overlay -o "$OVERLAY" "$ROOT" && cp -a "$ROOT$1" "$2"'
    done = subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-c", script, "copy", source, str(target)],
        env={
            "PATH": PATH,
            "OVERLAY": _overlay(stage, work / "from", work / "nothing"),
            "ROOT": str(work / "root"),
        },
        capture_output=True, text=True, timeout=STEP_DEADLINE_S,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"COPY --from {source}: {done.stderr[-2000:]}")
