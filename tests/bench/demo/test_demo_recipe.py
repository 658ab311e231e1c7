import pytest

from regtta.errors import OptionError
from regtta.methods import SSA, BNAdapt, FeatureAlignment, NoAdaptation
from regtta_bench.demo.demo_data import Darken
from regtta_bench.demo.demo_recipe import DEMO_METHODS, DemoMethod, DemoRecipe


def test_methods_run_with_their_defaults():
    plain = {entry.name: entry.method for entry in DEMO_METHODS if not entry.name.endswith("debiased")}
    assert plain == {
        "source": NoAdaptation(),
        "bn_adapt": BNAdapt(),
        "feature_alignment": FeatureAlignment(),
        "ssa_paper": SSA.from_paper(clip=True),
        "ssa": SSA(),
    }


def test_baselines_keep_the_same_running_statistics():
    recipe = DemoRecipe()
    for entry in recipe.methods:
        if not isinstance(entry.method, NoAdaptation | BNAdapt):
            baseline = recipe.find_method(entry.baseline).method
            assert isinstance(baseline, BNAdapt)
            assert baseline.batch_norm == entry.method.batch_norm


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": DEMO_METHODS[1:]},
        {"methods": DEMO_METHODS[:1]},
        {"methods": (*DEMO_METHODS, DEMO_METHODS[1])},
        {"methods": (DEMO_METHODS[0], DemoMethod("ssa", "SSA", SSA(), baseline="bn_adapt"))},
        {"degradations": {}},
        {"degradations": {"clean": Darken(0.5)}},
    ],
)
def test_invalid_recipes_are_rejected(changes):
    with pytest.raises(OptionError):
        DemoRecipe(**changes)
