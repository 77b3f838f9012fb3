"""A backup is named as a remedy in one place: restored, a voter has forgotten what it promised."""

from __future__ import annotations

from pathlib import Path

import rlmm
from rlmm.damaged_replica import REPLACE_REPLICA

FILES_THAT_NEVER_CHANGE = "data_directory.py"  # of the identity: their backup forgets nothing


def test_no_other_message_tells_to_restore_a_backup() -> None:
    assert "sole voter" in REPLACE_REPLICA
    said = {
        path.name
        for path in Path(rlmm.__file__).parent.rglob("*.py")
        if "backup" in path.read_text() or "restore the data directory" in path.read_text()
    }
    assert said == {"damaged_replica.py", FILES_THAT_NEVER_CHANGE}
