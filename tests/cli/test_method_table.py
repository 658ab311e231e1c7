import dataclasses
import json

import pytest

from regtta.cli.method_table import describe_method, list_methods, parse_argument_docs
from regtta.errors import OptionError
from regtta.methods import METHODS
from regtta.options import field_types, parse_options


def test_every_method_is_listed():
    assert [report.name for report in list_methods()] == list(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_every_option_has_a_meaning_and_a_default_that_can_be_typed(name):
    report = describe_method(name)
    assert report.summary.endswith(".")
    assert "``" not in report.summary
    assert [option.name for option in report.options] == [f.name for f in dataclasses.fields(METHODS[name])]
    for option in report.options:
        assert option.meaning, f"{name}.{option.name} is not in the docstring"
        assert "``" not in option.meaning
        assert "Callable" not in option.type
        typed = parse_options(name, field_types(METHODS[name]), [f"{option.name}={str(option.default).lower()}"])
        assert typed[option.name] == option.default


def test_description_of_ssa():
    report = describe_method("ssa")
    assert report.needs == ("source statistics", "head")
    assert "ICLR 2025" in report.paper
    k = next(option for option in report.options if option.name == "k")
    assert (k.type, k.default) == ('int | "auto"', 100)
    assert k.meaning == (
        'number of leading directions; "auto" uses the rank of the source features, and the default of 100 at most as '
        "many as clip admits."
    )


def test_a_misspelt_method_gets_a_suggestion():
    with pytest.raises(OptionError, match="Did you mean 'ssa'"):
        describe_method("sssa")


def test_docstrings_without_arguments():
    assert parse_argument_docs("Only a line.") == {}
    assert parse_argument_docs("") == {}
    assert parse_argument_docs("A.\n\nArgs:\n    a: x :class:`~y.Z`.\n\nExample:\n    b: no\n") == {"a": "x y.Z."}


def test_the_table_fits_a_terminal(regtta):
    shown = regtta("methods").stdout
    assert all(name in shown for name in METHODS)
    assert "nothing" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_terminal_output_of_one_method(regtta):
    shown = regtta("methods", "ssa").stdout
    assert "Adachi et al., ICLR 2025" in shown
    assert '"kl" | "w2" | "l1"' in shown
    assert regtta("methods", "source").stdout.splitlines()[-1].split() == ["options", "none"]


def test_json(regtta):
    every = json.loads(regtta("methods", "--json").stdout)
    assert [method["name"] for method in every] == list(METHODS)
    one = json.loads(regtta("methods", "ssa", "--json").stdout)
    assert one == every[list(METHODS).index("ssa")]
    clip = next(option for option in one["options"] if option["name"] == "clip")
    assert (clip["type"], clip["default"]) == ('bool | "null"', "null")


def test_descriptions_over_two_lines_are_joined():
    meanings = parse_argument_docs(METHODS["bn_adapt"].__doc__)
    assert meanings["batch_norm"].endswith("(Schneider et al., NeurIPS 2020).")
