"""Benchmarks: the packages ``speed`` and ``no_normalisation``, and standalone scripts."""
