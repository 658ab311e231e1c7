import pytest

from regtta.errors import OptionError
from regtta.methods import SSA, BNAdapt, FeatureAlignment, NoAdaptation
from regtta_bench.demo.demo_data import Darken
from regtta_bench.demo.demo_recipe import ARMS, Arm, Recipe


def test_methods_run_with_their_defaults():
    plain = {arm.name: arm.method for arm in ARMS if not arm.name.endswith("debiased")}
    assert plain == {
        "source": NoAdaptation(),
        "bn_adapt": BNAdapt(),
        "feature_alignment": FeatureAlignment(),
        "ssa": SSA(),
    }


def test_rivals_keep_the_same_running_statistics():
    recipe = Recipe()
    for arm in recipe.arms:
        if not isinstance(arm.method, NoAdaptation | BNAdapt):
            rival = recipe.arm(arm.rival).method
            assert isinstance(rival, BNAdapt)
            assert rival.batch_norm == arm.method.batch_norm


@pytest.mark.parametrize(
    "changes",
    [
        {"arms": ARMS[1:]},
        {"arms": ARMS[:1]},
        {"arms": (*ARMS, ARMS[1])},
        {"arms": (ARMS[0], Arm("ssa", "SSA", SSA(), rival="bn_adapt"))},
        {"degradations": {}},
        {"degradations": {"clean": Darken(0.5)}},
    ],
)
def test_what_cannot_be_compared_is_refused(changes):
    with pytest.raises(OptionError):
        Recipe(**changes)
