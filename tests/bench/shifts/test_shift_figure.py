import pytest

from helpers.shift_runs import PLAN, make_records
from regtta.report.figures import save_figure
from regtta_bench.shifts import select_shifts
from regtta_bench.shifts.results import collect_scores
from regtta_bench.shifts.shift_figure import draw_gains

SHIFTS = select_shifts(["wine"])
VALUES = {"source": 0.2, "bn_adapt": 0.45, "ssa": -0.15, "oracle": None}


def draw(names=(), rows=VALUES):
    shifts = select_shifts(names, SHIFTS)
    table, records = make_records(shifts, lambda shift, row, *_: rows.get(row, ...))
    return draw_gains(collect_scores(shifts, table, PLAN, records))


def test_each_half_is_a_panel_with_its_shifts_and_rows():
    panels = draw().axes[:2]
    assert [panel.get_title() for panel in panels] == ["development half", "held-out half"]
    for panel, half in zip(panels, ("development", "held-out"), strict=True):
        expected = {shift.name for shift in SHIFTS if shift.half == half}
        assert {label.get_text() for label in panel.get_yticklabels()} == expected
        assert [label.get_text() for label in panel.get_xticklabels()] == ["bn_adapt", "ssa", "oracle"]


def test_cells_show_the_gain_and_mark_divergence():
    panel = draw(["wine-white-drift"]).axes[0]
    (image,) = panel.get_images()
    assert image.get_array().tolist() == [pytest.approx([0.25, -0.35, -1.2])]
    assert image.get_clim() == (-0.5, 0.5)
    shown = [text.get_text() for text in panel.texts]
    assert shown[:3] == ["+0.25", "−0.35", "−1.20×"]
    assert "sensors" in shown


def test_a_row_that_was_not_run_on_a_shift_is_blank():
    shifts = select_shifts(["wine-white-drift", "wine-white-noise"])
    table, records = make_records(
        shifts, lambda shift, row, *_: ... if (row, shift.target) == ("ssa", "drift") else VALUES.get(row, ...)
    )
    panel = draw_gains(collect_scores(shifts, table, PLAN, records)).axes[0]
    assert len([text for text in panel.texts if text.get_text() != "sensors"]) == 2 * 3 - 1


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_written(tmp_path, ending):
    path = save_figure(draw(), tmp_path / f"shifts.{ending}")
    assert path.stat().st_size > 10_000
