"""The quorum core: KRaft's protocol as a pure, deterministic state machine (start: `core.py`)."""
