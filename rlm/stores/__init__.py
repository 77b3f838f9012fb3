"""The named stores: markers, clocks, snapshots, deletes of objects."""
