"""What ``import regtta`` offers, each looked at in a fresh interpreter."""

import pkgutil
import subprocess
import sys

import pytest

import regtta

MODULES = sorted(m.name for m in pkgutil.iter_modules(regtta.__path__) if not m.name.startswith("_"))


def fresh(code: str) -> str:
    """What ``code`` prints in an interpreter that has imported regtta and nothing else of it."""
    done = subprocess.run([sys.executable, "-c", f"import regtta\n{code}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("regtta.guards.Gate()", "Gate(level=0.001, tolerance=0.1, memory=128, least=32)"),
        ("regtta.methods.SSA is regtta.SSA", "True"),
        ("regtta.persistence.export.save_model.__name__", "save_model"),
        ("regtta.statistics.label_shift.__name__", "regtta.statistics.label_shift"),
        ("regtta.collect.__module__", "regtta.statistics.collection"),
        ("regtta.create_method.__module__", "regtta.methods.registry"),
    ],
)
def test_submodules_are_attributes_after_a_bare_import(expression, expected):
    assert fresh(f"print({expression})") == expected


def test_every_public_module_is_an_attribute_and_in_dir():
    found = fresh(f"for name in {MODULES}:\n    print(getattr(regtta, name).__name__)")
    assert found.splitlines() == [f"regtta.{name}" for name in MODULES]
    assert set(dir(regtta)) == {*regtta.__all__, *MODULES}


def test_importing_the_package_loads_no_module_of_it_and_not_torch():
    loaded = fresh("import sys; print(sorted(n for n in sys.modules if n == 'torch' or n.startswith('regtta')))")
    assert loaded == "['regtta', 'regtta._version']"


def test_no_exported_name_is_the_name_of_a_module():
    """Importing a module sets the attribute of its name, which would replace the exported one."""
    assert not set(regtta.__all__) & set(MODULES)


@pytest.mark.parametrize("name", ["no_such_module", "_version_2", "__wrapped__", "guards.gate", "", "os"])
def test_other_names_are_attribute_errors(name):
    with pytest.raises(AttributeError, match="module 'regtta' has no attribute"):
        getattr(regtta, name)
