import pytest

from benchmarks.speed.__main__ import main
from benchmarks.speed.run_cases import FILE, PAGE

QUICK = ["--quick", "--device", "cpu"]


def test_command_measures_selected_cases_and_renders_them_again(tmp_path, capsys):
    arguments = ["--out", str(tmp_path), *QUICK]
    assert main([*arguments, "--cases", "growth/k,floor"]) == 0
    printed = capsys.readouterr().out
    assert "How cost grows with k" in printed
    assert "The floor" in printed
    before = (tmp_path / PAGE).read_text()
    (tmp_path / PAGE).unlink()
    (tmp_path / "curves.png").unlink()
    assert main([*arguments, "--render"]) == 0
    assert (tmp_path / PAGE).read_text() == before
    assert (tmp_path / "curves.png").exists()


def test_list_option_prints_the_cases_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "none"
    assert main(["--out", str(out), *QUICK, "--list"]) == 0
    assert "step/mlp" in capsys.readouterr().out.split()
    assert not out.exists()


def test_invalid_requests_exit_with_an_error_message(tmp_path, capsys):
    assert main(["--out", str(tmp_path), *QUICK, "--cases", "nonsense"]) == 2
    assert "no case 'nonsense'" in capsys.readouterr().err
    (tmp_path / FILE).write_text("{}")
    assert main(["--out", str(tmp_path), *QUICK, "--render"]) == 2


def test_unreached_cases_are_reported_and_exit_with_1(tmp_path, capsys):
    assert main(["--out", str(tmp_path), *QUICK, "--cases", "floor", "--limit", "-1"]) == 1
    assert "missing: floor/images" in capsys.readouterr().err


def test_single_source_model_is_rejected(tmp_path):
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), "--sources", "1"])
