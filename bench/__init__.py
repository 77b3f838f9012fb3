"""Benchmarks: `python -m bench.NAME` measures one thing and writes one table."""
