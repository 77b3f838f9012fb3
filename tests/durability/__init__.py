"""Power cuts, damage and failing disks under everything that promises durability."""
