"""Deletes from the tier: by retention, DeleteRecords and topic deletion."""
