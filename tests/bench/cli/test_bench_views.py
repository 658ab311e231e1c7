import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from regtta_bench.cli.bench_views import column_blocks, print_text_table
from regtta_bench.tables.text_tables import TextCell, TextRow, TextTable

WIDE = TextTable(
    "Corruptions",
    tuple(f"blur {number}" for number in range(14)),
    (
        TextRow("ssa", tuple(TextCell(f"{number}.500 ± 0.125", bold=number == 3) for number in range(14))),
        TextRow("paper", tuple(TextCell(f"{number}.25") for number in range(14)), from_paper=True),
    ),
    ("a note",),
)


def printed(table, width):
    text = io.StringIO()
    print_text_table(table, Console(file=text, width=width, highlight=False, markup=False))
    return text.getvalue()


@pytest.mark.parametrize("width", [40, 80, 300])
def test_numbers_are_never_wrapped_or_dropped(width):
    text = printed(WIDE, width)
    for number in range(14):
        assert text.count(f" {number}.500 ± 0.125") == 1
        assert text.count(f" {number}.25\n") + text.count(f" {number}.25 ") == 1
    assert max(map(len, text.splitlines())) <= width
    assert (text.count("Corruptions"), text.count("a note")) == (1, 1)
    assert text.count("  paper") == len(column_blocks(WIDE, width))


def test_a_table_that_fits_is_one_block():
    assert column_blocks(WIDE, 1000) == [range(14)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.lists(st.text("ab ", max_size=12), max_size=9))
def test_blocks_cover_all_columns_in_order(width, titles):
    line = TextRow("name", tuple(TextCell("0.123") for _ in titles))
    made = column_blocks(TextTable("", tuple(titles), (line,)), width)
    assert [column for block in made for column in block] == list(range(len(titles)))
    assert all(len(block) > 0 for block in made) or not titles
