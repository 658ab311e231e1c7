import io

import pytest
from rich.console import Console
from rich.progress import Progress

from regtta_bench.cli.progress import ProgressBars, ProgressLines, format_duration, show_progress


class Clock:
    """Clock that advances only when ``now`` is set."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock(now=500.0)


@pytest.fixture
def printed():
    return []


@pytest.fixture
def lines(printed, clock):
    return ProgressLines(printed.append, clock)


def run(listener, clock, count, seconds):
    for _ in range(count):
        clock.now += seconds
        listener.on_run(None, {})


# --- lines ---------------------------------------------------------------------------------------


def test_the_time_left_is_that_of_the_runs_so_far(lines, clock, printed):
    lines.on_start(5, 7)
    run(lines, clock, 2, seconds=10)
    run(lines, clock, 3, seconds=40)
    assert printed == [
        "5 runs to make, 7 found.",
        "1 of 5 runs, about 40 s left",  # 4 left at 10 s
        "2 of 5 runs, about 30 s left",
        "3 of 5 runs, about 40 s left",  # 60 s for 3, so 20 s each
        "4 of 5 runs, about 25 s left",  # 100 s for 4
        "5 of 5 runs",
    ]


def test_many_runs_print_twenty_lines(lines, clock, printed):
    lines.on_start(1000, 0)
    run(lines, clock, 1000, seconds=6)
    assert len(printed) == 1 + 20
    assert printed[1] == "50 of 1000 runs, about 95 min left"  # 950 at 6 s
    assert printed[-2:] == ["950 of 1000 runs, about 5 min left", "1000 of 1000 runs"]


def test_the_last_run_is_always_printed(lines, clock, printed):
    lines.on_start(47, 0)
    run(lines, clock, 47, seconds=1)
    assert printed[-1] == "47 of 47 runs"
    assert printed[-2].startswith("46 of 47")


def test_a_training_is_printed_at_quarters_and_at_its_end(lines, clock, printed):
    for epoch in range(1, 101):
        clock.now += 30
        lines.on_training("svhn-0", epoch, 100)
    assert len(printed) <= 5
    assert [line for line in printed if ": 1 of" not in line] == [
        "training svhn-0: 25 of 100 epochs, about 38 min left",  # 75 at 30 s: 37.5 min
        "training svhn-0: 50 of 100 epochs, about 25 min left",
        "training svhn-0: 75 of 100 epochs, about 12 min left",
        "training svhn-0: 100 of 100 epochs",
    ]


def test_the_first_epoch_is_excluded_from_the_estimate(lines, clock, printed):
    clock.now += 3600
    lines.on_training("svhn-0", 1, 8)
    clock.now += 10
    lines.on_training("svhn-0", 2, 8)
    assert printed[-1] == "training svhn-0: 2 of 8 epochs, about 60 s left"


def test_a_resumed_training_is_timed_from_its_resumption(lines, clock, printed):
    lines.on_training("svhn-0", 51, 100)
    clock.now += 48
    lines.on_training("svhn-0", 75, 100)
    assert printed == ["training svhn-0: 75 of 100 epochs, about 50 s left"]


def test_concurrent_trainings_are_timed_separately(lines, clock, printed):
    lines.on_training("first", 1, 4)
    clock.now += 100
    lines.on_training("second", 1, 4)
    clock.now += 10
    lines.on_training("second", 2, 4)
    lines.on_training("first", 2, 4)
    assert printed[-2:] == [
        "training second: 2 of 4 epochs, about 20 s left",
        "training first: 2 of 4 epochs, about 4 min left",
    ]


def test_the_training_before_a_run_is_part_of_its_time(lines, clock, printed):
    lines.on_start(2, 0)
    clock.now += 60
    lines.on_training("svhn-0", 1, 1)
    run(lines, clock, 1, seconds=30)
    assert printed[-1] == "1 of 2 runs, about 90 s left"


def test_a_short_training_is_printed_at_its_end(lines, printed):
    lines.on_training("svhn-0", 1, 1)
    assert printed == ["training svhn-0: 1 of 1 epochs"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (150.1, "3 min"),
        (5940, "99 min"),
        (6000, "1 h 40 min"),
        (86400, "24 h 0 min"),
    ],
)
def test_durations_are_readable(seconds, text):
    assert format_duration(seconds) == text


# --- bars ----------------------------------------------------------------------------------------


@pytest.fixture
def progress():
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=100)
    with Progress(console=console, auto_refresh=False) as bars:
        yield bars


def tasks(progress):
    return {task.description: (task.completed, task.total, task.visible) for task in progress.tasks}


def shown(progress):
    progress.refresh()
    return progress.console.export_text()


def test_the_runs_have_a_bar(progress):
    bars = ProgressBars(progress)
    bars.on_start(8, 0)
    assert tasks(progress) == {"runs": (0, 8, True)}
    for _ in range(2):
        bars.on_run(None, {})
    assert tasks(progress) == {"runs": (2, 8, True)}
    assert "runs" in (text := shown(progress))
    assert "25%" in text


def test_the_number_of_found_runs_is_beside_the_bar(progress):
    ProgressBars(progress).on_start(3, 5)
    assert list(tasks(progress)) == ["runs (5 found)"]


def test_every_training_has_a_bar_until_it_is_done(progress):
    bars = ProgressBars(progress)
    bars.on_training("first", 1, 4)
    bars.on_training("second", 1, 2)
    bars.on_training("first", 2, 4)
    assert tasks(progress) == {
        "training first, epochs": (2, 4, True),
        "training second, epochs": (1, 2, True),
    }
    assert "training second" in shown(progress)
    bars.on_training("second", 2, 2)
    assert tasks(progress)["training second, epochs"] == (2, 2, False)
    assert tasks(progress)["training first, epochs"] == (2, 4, True)
    assert "training second" not in shown(progress)


def test_a_run_before_the_start_is_ignored(progress):
    ProgressBars(progress).on_run(None, {})
    assert tasks(progress) == {}


# --- choice of the listener ----------------------------------------------------------------------


def test_without_a_terminal_plain_lines_go_to_stderr(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with show_progress() as listener:
        assert isinstance(listener, ProgressLines)
        listener.on_start(1, 0)
        listener.on_training("[bold]" + "long " * 40, 1, 1)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"1 runs to make, 0 found.\ntraining [bold]{'long ' * 40}: 1 of 1 epochs\n"


def test_a_terminal_gets_progress_bars(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with show_progress() as listener:
        assert isinstance(listener, ProgressBars)
        listener.on_start(3, 0)
    output = capsys.readouterr()
    assert "runs" in output.err
    assert output.out == ""
