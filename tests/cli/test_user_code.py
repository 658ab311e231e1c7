import sys
from pathlib import Path

import pytest

from regtta.cli.user_code import import_object, is_object_reference
from regtta.errors import OptionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:b", True),
        ("a.b.c:d.e", True),
        ("a", False),
        ("a:", False),
        (":b", False),
        ("a/b:c", False),
        (r"C:\data\x.csv", False),
        ("a.:b", False),
    ],
)
def test_object_references(text, expected):
    assert is_object_reference(text) is expected


def test_the_working_directory_is_searched(tmp_path: Path, monkeypatch):
    (tmp_path / "only_here.py").write_text("class Box:\n    value = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    assert import_object("only_here:Box.value", "--model") == 7


def test_a_missing_module_is_reported():
    with pytest.raises(OptionError, match="no module 'no_such_thing' here.*Run regtta from the folder"):
        import_object("no_such_thing.sub:x", "--model")


def test_a_module_whose_own_import_fails_names_that_import(tmp_path: Path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import not_installed_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        OptionError, match=r"'needs_more' cannot be imported: .*not_installed_at_all.*needs_more.py, line 1"
    ):
        import_object("needs_more:x", "--data")


def test_a_syntax_error_is_reported(tmp_path: Path, monkeypatch):
    (tmp_path / "typo.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match="'typo' cannot be imported: SyntaxError"):
        import_object("typo:f", "--model")


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(OptionError, match="'math' has no 'flor'. Did you mean 'floor'"):
        import_object("math:flor", "--model")


def test_the_expected_form_is_stated():
    with pytest.raises(OptionError, match="Expected --data to be package.module:name, found 'math'"):
        import_object("math", "--data")
