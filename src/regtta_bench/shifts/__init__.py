"""The benchmark of shifts: a suite of named shifts with a fixed split, its rows, tables and picture."""

from regtta_bench.shifts.suite import DEVELOPMENT, HELD_OUT, SHIFTS, SOURCES, Shift, select_shifts

__all__ = ["DEVELOPMENT", "HELD_OUT", "SHIFTS", "SOURCES", "Shift", "select_shifts"]
