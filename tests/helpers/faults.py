"""Number of repetitions of each fault, in the tests and in the table of docs/faults.md."""

KILLS = 200
"""Number of times that one stream is killed with SIGKILL at a random moment and resumed."""

KILLED_WRITES = 20
"""Minimum number of them that interrupt the writing of a checkpoint and leave a temporary file."""

PREDICTING_THREADS = 4
ADAPTING_THREADS = 2
PREDICTIONS_A_THREAD = 150
UPDATES_A_THREAD = 100
"""Calls on one adapter under load."""

DISK_FAULTS = ("disk full", "disk read-only", "folder gone", "path is a folder", "file gone", "file too large")
"""Each: the stream goes on, the last good checkpoint stays, and writing recovers when the fault is over."""
