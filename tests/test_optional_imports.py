"""Imports of optional packages, with an error that names the extra to install if one is missing."""

import re
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from regtta import optional_imports
from regtta.errors import MissingExtraError, RegttaError
from regtta.optional_imports import find_extra, import_optional, install_command

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "ot": "POT", "umap": "umap-learn"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a module of the given source into a folder on the path."""

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)

    monkeypatch.syspath_prepend(tmp_path)
    return write


def test_an_installed_module_is_returned():
    assert import_optional("json", "cli", "This test") is sys.modules["json"]
    assert import_optional("json.decoder", "cli", "This test") is sys.modules["json.decoder"]


@pytest.mark.parametrize("module", ["not_there", "not_there.at_all"])
def test_a_missing_module_names_the_purpose_the_package_and_the_extra(module):
    with pytest.raises(MissingExtraError) as caught:
        import_optional(module, "monitor", "The ADWIN detector")
    assert str(caught.value) == (
        'The ADWIN detector requires not_there, which is not installed: pip install "regtta[monitor]".'
    )
    assert isinstance(caught.value, RegttaError)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize(("module", "distribution"), [("ot", "POT"), ("umap", "umap-learn")])
def test_a_package_is_called_by_its_name_on_pypi(module, distribution, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f"requires {distribution}, which is not installed"):
        import_optional(module, "analysis", "This test")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import not_there", "No module named 'not_there'"),
        ("from json import not_there", "cannot import name 'not_there' from 'json'"),
        ("raise ImportError('version 2 or later is required')", "version 2 or later is required"),
    ],
)
def test_a_broken_module_is_not_reported_as_missing(package, source, reason):
    package("broken_module", source)
    with pytest.raises(MissingExtraError, match="requires broken_module, which cannot be imported") as caught:
        import_optional("broken_module", "export", "This test")
    assert reason in str(caught.value)
    assert install_command("export") in str(caught.value)


def test_errors_other_than_import_errors_are_passed_on(package):
    package("failing_module", "raise ValueError('a bug')")
    with pytest.raises(ValueError, match="a bug"):
        import_optional("failing_module", "export", "This test")


def test_import_warnings_of_the_package_are_silenced_and_others_are_not(package):
    package("warning_module", "import warnings\nwarnings.warn('TensorFlow is missing', ImportWarning)")
    package("deprecated_module", "import warnings\nwarnings.warn('old', FutureWarning)")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import_optional("warning_module", "analysis", "This test")
        import_optional("deprecated_module", "analysis", "This test")
    assert [warning.category for warning in caught] == [FutureWarning]


def test_the_extra_of_a_module():
    assert find_extra("pandas") == find_extra("pyarrow.parquet") == "cli"
    assert find_extra("ray") == "ray"
    assert find_extra("torch") is None
    assert find_extra("") is None


def test_the_table_of_extras_agrees_with_the_project_file():
    declared = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra, modules in optional_imports._EXTRAS.items():
        named = {re.split(r"[\[><=; ]", requirement)[0] for requirement in declared[extra]} - {"regtta"}
        assert {DISTRIBUTIONS.get(module, module) for module in modules} == named
