"""Benchmarks: the package ``speed`` and standalone scripts."""
