"""Tests of `pipeline/reconcile/`."""
