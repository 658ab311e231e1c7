import math

import numpy as np
import pytest

from regtta.experiments.report import Entry, Grid
from regtta.experiments.report.tables import sort_key, table_of


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0.93", 0.93),
        ("0.93 ± 0.02", 0.93),
        ("+0.25 [+0.21, +0.29]", 0.25),
        ("−1.2", -1.2),
        ("-1.2", -1.2),
        ("  7 %", 7.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("1e-3", 0.001),
        ("2E−4", 2e-4),
        ("12,345.5", 12345.5),
        ("1,2", 1.0),
        ("1,2345", 1.0),
        ("15 of 15", 15.0),
        ("diverged", "diverged"),
        ("ssa 10", "ssa 10"),
        ("− none", "− none"),
        ("nan", "nan"),
        ("", None),
        ("  ", None),
    ],
)
def test_text_sorts_by_the_number_it_begins_with(text, key):
    assert sort_key(Entry(text)) == key


@pytest.mark.parametrize(
    ("value", "key"),
    [(3, 3.0), (np.float64(2.5), 2.5), (-math.inf, -math.inf), ("7 words", "7 words"), ("", None), (math.nan, None)],
)
def test_a_value_goes_before_the_text(value, key):
    assert sort_key(Entry("1 text", value=value)) == key


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        (1e-7, 'data-number="1e-07"'),
        (np.float64(0.1), 'data-number="0.1"'),
        (math.inf, 'data-number="Infinity"'),
        (-math.inf, 'data-number="-Infinity"'),
        ("1 word", 'data-text="1 word"'),
    ],
)
def test_keys_are_written_as_the_script_reads_them(key, attribute):
    assert f'<th scope="row" class="text" {attribute}>a</th>' in table_of(
        Grid("t", ("c",), ((Entry("a", value=key),),)), "t"
    )


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (("0.1", "−2", "diverged"), "number"),
        (("0.1", ""), "number"),
        (("0.1", "diverged"), "text"),
        (("a", "b", "3"), "text"),
        (("", ""), "text"),
        ((), "text"),
    ],
)
def test_a_column_of_mostly_numbers_stands_at_the_right(texts, kind):
    table = table_of(Grid("t", ("c",), tuple((Entry(text),) for text in texts)), "t")
    assert table.count(f'class="{kind}"') == 1 + len(texts)
