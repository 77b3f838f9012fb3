"""One set-up of the event loop for everything that runs a node."""

from __future__ import annotations

import gc
import sys

import pytest
import uvloop

from strandline.event_loop import SWITCH_INTERVAL_S, leave_out_of_collections, node_runner
from strandline.time_slice import USUAL_S, set_time_slice


def test_a_node_runs_on_uvloop_and_threads_give_way_soon() -> None:
    before = sys.getswitchinterval()
    try:
        with node_runner() as runner:
            assert isinstance(runner.get_loop(), uvloop.Loop)
            assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    finally:
        sys.setswitchinterval(before)
        set_time_slice(USUAL_S)


def test_what_is_built_is_left_out_of_collections() -> None:
    before = gc.get_freeze_count()
    try:
        leave_out_of_collections()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
