import logging
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.speed.bench import QUICK, Bench
from benchmarks.speed.comparison import compare, warm_up
from benchmarks.speed.timing import TimedCall

BENCH = Bench(torch.device("cpu"), Path(), quick=True, effort=QUICK)


def test_failing_variant_does_not_affect_the_others():
    def broken():
        raise RuntimeError("no such kernel\nand a long story")

    makers = {"base": lambda: TimedCall(lambda: None), "broken": broken, "fine": lambda: TimedCall(lambda: None)}
    table = compare("ways", makers, ("base",), BENCH, samples=1, reading="times as fast")
    base, failed, fine = table.rows
    assert failed.note == "failed: RuntimeError: no such kernel"
    assert failed.ratios == {}
    assert base.ratios["base"].median == 1
    assert fine.ratios.keys() == {"base"}


def test_failing_reference_leaves_the_others_without_ratios():
    def broken():
        raise RuntimeError("out of memory")

    makers = {"base": broken, "fine": lambda: TimedCall(lambda: None)}
    table = compare("ways", makers, ("base",), BENCH, samples=1, reading="times as fast")
    assert [row.ratios for row in table.rows] == [{}, {}]


def test_log_messages_and_remarks_are_noted_once():
    def say():
        logging.getLogger("regtta.engine.learner").info("cannot be captured: a hook")
        logging.getLogger("regtta.statistics.source").warning("k=100 is beyond the rank")

    makers = {"base": lambda: TimedCall(say, remark=lambda: "3 of 9 batches were refused")}
    table = compare("ways", makers, ("base",), BENCH, samples=1, reading="times as fast")
    assert table.rows[0].note == "cannot be captured: a hook; 3 of 9 batches were refused"
    assert logging.getLogger("regtta").level == logging.NOTSET


def test_warm_up_makes_the_configured_number_of_calls():
    calls = []
    effort = replace(QUICK, warm_calls=5)
    field = warm_up({"a": lambda: TimedCall(lambda: calls.append(None))}, BENCH, effort)
    assert len(calls) == 5
    assert field.calls_by_name.keys() == {"a"}


def test_absolute_times_are_not_reported_on_a_cpu():
    table = compare("w", {"a": lambda: TimedCall(lambda: None)}, ("a",), BENCH, samples=4, reading="times the time")
    (row,) = table.rows
    assert (row.milliseconds, row.per_second, row.peak_mib) == (None, None, None)
