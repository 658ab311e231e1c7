"""How often each fault is tried: the numbers that the tests run with and that the documentation's table states."""

KILLS = 200
"""Moments at which one stream is killed with SIGKILL and resumed."""

KILLED_WRITES = 20
"""Of them, at least so many that fall into the writing of a checkpoint (a draft is left behind)."""

PREDICTING_THREADS = 4
ADAPTING_THREADS = 2
PREDICTIONS_A_THREAD = 150
UPDATES_A_THREAD = 100
"""Calls on one adapter under load."""

DISK_FAULTS = ("disk full", "disk read-only", "folder gone", "path is a folder", "file gone", "file too large")
"""Each: the stream goes on, the last good checkpoint stays, and writing recovers when the fault is over."""
