"""The base of the worlds: time, disks that forget, planted mistakes."""
