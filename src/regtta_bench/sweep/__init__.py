"""Sweeps: run specifications and their keys, the store of results, and the executors that make the runs."""
