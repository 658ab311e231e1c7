"""Artificial findings of every kind, with round numbers."""

from benchmarks.speed.findings import (
    Curve,
    Fact,
    Findings,
    Point,
    Row,
    Score,
    Shares,
    Spread,
    Table,
)

SPREAD = Spread(1.5, 1.25, 2.0, 7)
EVERYTHING = Findings(
    "all kinds",
    "made up",
    tables=(
        Table(
            "a table",
            "times as fast",
            (
                Row("base", {"base": Spread(1.0, 1.0, 1.0, 7)}, SPREAD, 640.0, 12.5),
                Row("other", {"base": Spread(0.5, 0.4, 0.8, 7)}, None, None, None, "a note"),
                Row("broken", note="failed: RuntimeError: no"),
            ),
        ),
    ),
    curves=(
        Curve("a curve", "k", "time", {"base": (Point(1, SPREAD),), "other": (Point(1, SPREAD, SPREAD),)}, "base"),
    ),
    shares=(Shares("a step", {"convolution": 0.75, "other": 0.25}, (("conv_kernel", "convolution", 0.7),), 0.9),),
    scores=(
        Score("digits", "float32", (0.5, 0.7), (0.0, 0.0, 0.0), 0.0, "case", "other"),
        Score("digits", "bfloat16", (), None, None),
    ),
    facts=(Fact("bytes", 3.5, "GB"),),
)
