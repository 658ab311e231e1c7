from collections import Counter

import pytest

from regtta.errors import OptionError
from regtta_bench.corruptions import CORRUPTIONS
from regtta_bench.data import SENSOR_FAULTS, TABLE_DOMAINS
from regtta_bench.paper import SETTINGS
from regtta_bench.shifts import SHIFTS, SOURCES, select_shifts
from regtta_bench.sweep.run_specs import SweepPlan

BY_NAME = {shift.name: shift for shift in SHIFTS}


def test_names_are_unique_and_so_are_source_and_target():
    assert len(BY_NAME) == len(SHIFTS) == len({(shift.source, shift.target) for shift in SHIFTS})


def test_the_counts_of_the_split():
    assert Counter((shift.half, shift.kind, shift.modality) for shift in SHIFTS) == {
        ("development", "natural", "tables"): 6,
        ("development", "natural", "images"): 1,
        ("development", "sensors", "tables"): 12,
        ("development", "corruption", "images"): 21,
        ("held-out", "natural", "tables"): 4,
        ("held-out", "sensors", "tables"): 28,
        ("held-out", "corruption", "images"): 18,
    }


def test_the_shifts_that_defaults_were_first_measured_on_are_development():
    measured = (
        *("bike-2011-to-2012", "wine-white-to-red", "pm-dongsi-to-huairou", "pm-winter-to-summer"),
        *("cmapss-fd001-to-fd003", "bike-2011-drift", "pm-dongsi-drift", "wine-white-drift", "cmapss-drift"),
    )
    assert {BY_NAME[name].half for name in measured} == {"development"}


def test_reversed_directions_are_held_out():
    natural = {
        shift.half: {(s.part.variant, s.target) for s in SHIFTS if s.half == shift.half and s.kind == "natural"}
        for shift in SHIFTS
    }
    backwards = {(target, source) for source, target in natural["held-out"]}
    assert backwards < natural["development"]
    assert len(backwards) == 4


def test_no_fault_or_corruption_is_in_both_halves():
    for kind, names in (("sensors", SENSOR_FAULTS), ("corruption", CORRUPTIONS)):
        halves = {
            half: {s.target for s in SHIFTS if (s.kind, s.half) == (kind, half)} for half in ("development", "held-out")
        }
        assert halves["development"].isdisjoint(halves["held-out"])
        assert halves["development"] | halves["held-out"] == set(names)
    assert [s.target for s in select_shifts(["mnist", "development"])] == list(CORRUPTIONS)[::2]


def test_every_target_exists_in_its_data_set():
    for shift in SHIFTS:
        domains = TABLE_DOMAINS.get(shift.setting.data)
        if domains is not None:
            assert shift.part.variant in domains
            assert shift.target in {*domains, *SENSOR_FAULTS}
            assert shift.target != shift.part.variant


def test_source_models_are_five_for_tables_and_three_for_images():
    assert {(s.modality, s.setting.source_seeds) for s in SHIFTS} == {("tables", 5), ("images", 3)}
    assert {s.setting.k for s in SHIFTS} == {100}


@pytest.mark.parametrize(
    ("source", "setting"), [("svhn", "svhn-subset"), ("california", "california"), ("utkface", "utkface")]
)
def test_source_models_of_the_papers_settings_are_shared(source, setting):
    paper = SETTINGS[setting]
    part = next(iter(paper.parts.values()))
    ours = next(s.part for s in SHIFTS if s.source == source and s.target == part.target)
    plan = SweepPlan()
    assert plan.source_spec(SOURCES[source], ours, "regression", 1) == plan.source_spec(paper, part, "regression", 1)


def test_places_are_united_and_groups_restrict_them():
    assert select_shifts([]) == SHIFTS
    assert {s.data for s in select_shifts(["bike", "wine"])} == {"bike", "wine"}
    assert {s.source for s in select_shifts(["pm-dongsi", "pm-huairou"])} == {"pm-dongsi", "pm-huairou"}
    chosen = select_shifts(["images", "held-out"])
    assert {(s.modality, s.half) for s in chosen} == {("images", "held-out")}
    assert [s.name for s in select_shifts(["cmapss-drift", "mnist-fog"])] == ["cmapss-drift", "mnist-fog"]
    assert len(select_shifts(["cmapss"])) == 8


def test_unknown_or_contradictory_names_are_errors():
    with pytest.raises(OptionError, match=r"found 'bikes'.*bike"):
        select_shifts(["bikes"])
    with pytest.raises(OptionError, match="No shift is bike and images at once"):
        select_shifts(["bike", "images"])
