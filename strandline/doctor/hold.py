"""Doctor's check of holding: can a link be made from each log directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from kafka_formats.errors import StrandlineError
from rlm.local_log.hold_directory import HoldDirectory, hold_directories
from strandline.doctor.finding import Finding
from strandline.settings.settings import Settings


def check_hold(settings: Settings) -> Iterator[Finding]:
    """A finding for each hold directory, none without one; leaves no file behind."""
    if not settings.hold.dirs:
        return
    try:
        pairs = hold_directories(settings.hold.dirs, settings.kafka.log_dirs, own_name="")
    except StrandlineError as error:
        yield Finding("hold", False, str(error))
        return
    for pair in pairs:
        check = f"hold {pair.path}"
        try:
            with TemporaryDirectory(prefix=".doctor-", dir=pair.path) as aside:
                HoldDirectory(Path(aside), pair.log_dirs).prepare()
        except (OSError, StrandlineError) as error:
            yield Finding(check, False, str(error))
            continue
        named = ", ".join(str(log_dir) for log_dir in pair.log_dirs)
        yield Finding(check, True, f"links from {named} can be made")
