"""Dashboards and alert rules against the metrics that exist."""
