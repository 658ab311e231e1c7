import pytest
import torch

from benchmarks.speed import run_cases
from benchmarks.speed.bench import QUICK, Bench
from benchmarks.speed.findings import Fact, Findings
from benchmarks.speed.record import FILE, read
from benchmarks.speed.run_cases import run, select_cases
from regtta.errors import OptionError


class Cases:
    """Cases that record their runs and fail if listed in ``broken``."""

    def __init__(self):
        self.ran = []
        self.broken = set()

    def __call__(self, bench):
        return {name: self._case(name) for name in ("a", "b/one", "b/two")}

    def _case(self, name):
        def case():
            self.ran.append(name)
            if name in self.broken:
                raise RuntimeError("it broke")
            return Findings(name, facts=(Fact("runs", len(self.ran)),))

        return case


@pytest.fixture
def cases(monkeypatch):
    made = Cases()
    monkeypatch.setattr(run_cases, "cases_for", made)
    return made


@pytest.fixture
def bench(tmp_path):
    return Bench(torch.device("cpu"), tmp_path / "new" / "folder", quick=True, effort=QUICK)


def test_recorded_cases_are_not_run_again_unless_forced(cases, bench):
    assert run(bench) == []
    assert run(bench) == []
    assert cases.ran == ["a", "b/one", "b/two"]
    assert run(bench, chosen=["b/one"], force=True) == []
    assert cases.ran[3:] == ["b/one"]
    assert list(read(bench.out / FILE).findings) == ["a", "b/one", "b/two"]


def test_failing_case_does_not_stop_the_others_and_is_retried(cases, bench, capsys):
    cases.broken = {"b/one"}
    assert run(bench) == ["b/one"]
    assert "it broke" in capsys.readouterr().err
    assert list(read(bench.out / FILE).findings) == ["a", "b/two"]
    cases.broken = set()
    assert run(bench) == []
    assert cases.ran[3:] == ["b/one"]


def test_findings_are_saved_before_the_next_case_starts(cases, bench, monkeypatch):
    found = []
    whole = cases("bench")
    seen = {
        "a": whole["a"],
        "b/one": lambda: found.extend(read(bench.out / FILE).findings) or whole["b/one"](),
    }
    monkeypatch.setattr(run_cases, "cases_for", lambda _: seen)
    run(bench)
    assert found == ["a"]


def test_no_case_starts_after_the_time_limit(cases, bench, capsys):
    assert run(bench, limit=-1) == ["a", "b/one", "b/two"]
    assert cases.ran == []
    assert "not reached" in capsys.readouterr().out


def test_cases_are_selected_by_name_or_prefix(cases):
    every = cases("bench")
    assert list(select_cases(every, [])) == ["a", "b/one", "b/two"]
    assert list(select_cases(every, ["b"])) == ["b/one", "b/two"]
    assert list(select_cases(every, ["b/two", "a"])) == ["a", "b/two"]
    with pytest.raises(OptionError, match="no case 'c' here. The cases are a, b/one, b/two"):
        select_cases(every, ["c"])
