"""Benchmark cases, one per module: each returns its findings."""
