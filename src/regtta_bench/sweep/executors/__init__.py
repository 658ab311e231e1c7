"""Executors of runs: in this process, in several processes, or on a Ray cluster."""
