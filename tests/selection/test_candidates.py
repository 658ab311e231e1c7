import pytest

import regtta
from regtta.errors import OptionError
from regtta.selection import candidate_name, default_candidates
from regtta.selection.candidates import read_candidates


def test_the_default_candidates_begin_with_the_unadapted_model_and_have_distinct_methods():
    found = default_candidates()
    assert next(iter(found)) == "source"
    assert {"bn_adapt", "ssa"} <= set(found)
    assert len(set(map(repr, found.values()))) == len(found)


@pytest.mark.parametrize("method", [*default_candidates().values(), regtta.SSA(k=7, metric="w2")])
def test_a_name_gives_the_method_back(method):
    name = candidate_name(method)
    assert read_candidates(["bn_adapt", name] if isinstance(method, regtta.NoAdaptation) else [name])[name] == method


def test_candidates_are_methods_names_or_a_dict():
    found = read_candidates([regtta.BNAdapt(), "ssa:k=25, lr=1e-2", "tent+ssa"])
    assert list(found) == ["source", "bn_adapt", "ssa:k=25, lr=1e-2", "tent+ssa"]
    assert found["ssa:k=25, lr=1e-2"] == regtta.SSA(k=25, lr=1e-2)
    named = read_candidates({"mine": "ssa", "as trained": regtta.NoAdaptation()})
    assert list(named) == ["as trained", "mine"]


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        ("ssa", "a list of methods"),
        (["ssa", "ssa"], "given twice"),
        (["source"], "at least one candidate"),
        ([regtta.SSA], "methods or their names"),
        (["oracle"], "learns from labels"),
        (["nope"], "the method to be one of"),
        (["ssa:k"], "key=value"),
    ],
)
def test_wrong_candidates_are_errors(candidates, words):
    with pytest.raises(OptionError, match=words):
        read_candidates(candidates)
