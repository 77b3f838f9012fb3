"""The remote log manager in a seeded world of brokers, stores and nodes (`sim/tier/world.py`)."""
