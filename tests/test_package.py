"""Public names of the packages, and the state of a fresh interpreter after ``import regtta``."""

import importlib
import json
import pkgutil
import subprocess
import sys

import pytest

import regtta
import regtta_bench

MODULES = sorted(m.name for m in pkgutil.iter_modules(regtta.__path__) if not m.name.startswith("_"))
SUBPACKAGES = (
    *("checks", "cli", "engine", "execution", "guards", "methods"),
    *("models", "monitoring", "persistence", "report", "statistics"),
)
EXPRESSIONS = {
    "regtta.guards.Gate().level": "0.001",
    "regtta.methods.SSA is regtta.SSA": "True",
    "regtta.persistence.export.save_model.__name__": "save_model",
    "regtta.statistics.label_shift.__name__": "regtta.statistics.label_shift",
    "regtta.collect.__module__": "regtta.statistics.collection",
    "regtta.create_method.__module__": "regtta.methods.registry",
}
PACKAGES = sorted(
    package.name
    for root in (regtta, regtta_bench)
    for package in (
        *pkgutil.walk_packages(root.__path__, f"{root.__name__}."),
        pkgutil.ModuleInfo(None, root.__name__, ispkg=True),
    )
    if package.ispkg
)
# Looks at sys.modules first: each later line imports more of the package.
FRESH = f"""
import json, sys
import regtta
loaded = sorted(sys.modules)
listed = dir(regtta)
values = {{text: str(eval(text)) for text in {list(EXPRESSIONS)}}}
modules = [getattr(regtta, name).__name__ for name in {MODULES}]
json.dump(dict(loaded=loaded, listed=listed, values=values, modules=modules), sys.stdout)
"""


@pytest.fixture(scope="module")
def fresh() -> dict:
    """Report of one interpreter that imports regtta and nothing else of it."""
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS.items())
def test_submodules_are_attributes_after_a_bare_import(fresh, expression, expected):
    assert fresh["values"][expression] == expected


def test_every_public_module_is_an_attribute_and_in_dir(fresh):
    assert fresh["modules"] == [f"regtta.{name}" for name in MODULES]
    assert set(SUBPACKAGES) <= set(MODULES)
    assert set(fresh["listed"]) == set(dir(regtta)) == {*regtta.__all__, *MODULES}


def test_importing_the_package_loads_no_module_of_it_and_neither_torch_nor_numpy(fresh):
    assert [name for name in fresh["loaded"] if name.startswith("regtta")] == ["regtta", "regtta._version"]
    assert not {"torch", "numpy"} & set(fresh["loaded"])


def test_no_exported_name_is_the_name_of_a_module():
    """Importing a module sets the attribute of its name, which would replace the exported one."""
    assert not set(regtta.__all__) & set(MODULES)


@pytest.mark.parametrize("name", ["no_such_module", "_version_2", "__wrapped__", "guards.gate", "", "os"])
def test_other_names_are_attribute_errors(name):
    with pytest.raises(AttributeError, match="module 'regtta' has no attribute"):
        getattr(regtta, name)


def test_the_walk_finds_packages_at_every_depth():
    assert {"regtta", *(f"regtta.{name}" for name in SUBPACKAGES)} <= set(PACKAGES)
    assert {"regtta_bench", "regtta_bench.data", "regtta.report.analysis", "regtta.cli.data"} <= set(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_a_docstring_and_everything_that_it_exports(name):
    package = importlib.import_module(name)
    assert (package.__doc__ or "").strip()
    exported = getattr(package, "__all__", [])
    assert len(set(exported)) == len(exported)
    assert [public for public in exported if not hasattr(package, public)] == []
