"""Ctrl-C ends the look at a bucket, however much of it is left to read."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.pipeline.catalogue.test_manifest_catalogue import PREFIX, put
from tests.real.toolbox import REPOSITORY

WAITS_S = 60
READING = """
import signal
import sys
from pathlib import Path
from pipeline.catalogue.manifest_catalogue import ManifestCatalogue
from pipeline.stores.small_objects import _Files
from rsm_backends.store_config import StoreConfig

def reads_without_end(self, keys):
    for _ in keys:
        print("reading", flush=True)
        print("closed" if self._ended.wait(float(sys.argv[3])) else "waited", flush=True)
        yield b""

_Files._quickly = reads_without_end
# Where the tests run in the background, Ctrl-C is ignored by what they start, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
store = StoreConfig(name="main", kind="filesystem", path=Path(sys.argv[1]), prefix=sys.argv[2])
catalogue = ManifestCatalogue({"main": store})
try:
    [catalogue.bounds(each) for each in catalogue.partitions("orders")]
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupted_caller_does_not_wait_for_the_rest(tmp_path: Path) -> None:
    put(tmp_path, 1, 0, 9)
    arguments = [sys.executable, "-c", READING, str(tmp_path), PREFIX, str(WAITS_S)]
    with subprocess.Popen(
        arguments, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == "reading\n"
        reading.send_signal(signal.SIGINT)
        told, errors = reading.communicate(timeout=2 * WAITS_S)
    assert (told, errors) == ("closed\ninterrupted\n", "")
