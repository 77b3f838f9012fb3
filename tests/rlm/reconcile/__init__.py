"""Tests of `rlm/reconcile/`."""
