import dataclasses
import inspect

import pytest

import regtta
from regtta.errors import OptionError
from regtta.methods import GradientMethod, Method


def test_the_table_is_read_only_and_says_the_methods_names():
    assert all(cls.name == name for name, cls in regtta.METHODS.items())
    with pytest.raises(TypeError):
        regtta.METHODS["mine"] = regtta.SSA


@pytest.mark.parametrize("name", regtta.METHODS)
def test_every_method_is_a_frozen_dataclass_with_defaults_and_a_page(name):
    cls = regtta.METHODS[name]
    assert dataclasses.is_dataclass(cls)
    assert cls() == cls()
    assert cls.__bases__[0] is Method or inspect.isabstract(cls.__bases__[0])
    assert cls.paper
    assert cls.__doc__.splitlines()[0].endswith((".", ".\n"))
    said = "".join(ancestor.__doc__ or "" for ancestor in cls.__mro__)
    for field in dataclasses.fields(cls):
        assert f"{field.name}: " in said, f"{name} does not say what {field.name} does"
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(cls(), field.name, None)


def test_by_name():
    assert regtta.method("ssa", k=25, lr=1e-4) == regtta.SSA(k=25, lr=1e-4)
    assert isinstance(regtta.method("bn_adapt"), regtta.BNAdapt)
    with pytest.raises(OptionError, match="Did you mean 'ssa'"):
        regtta.method("ssaa")
    with pytest.raises(OptionError, match="SSA has no option 'learning_rate'"):
        regtta.method("ssa", learning_rate=1)
    with pytest.raises(OptionError, match="Source has no option 'lr'; it has none"):
        regtta.method("source", lr=1)


def test_the_papers_defaults():
    ssa = regtta.SSA()
    assert (ssa.k, ssa.weighting, ssa.metric, ssa.lr, ssa.optimizer) == (100, True, "kl", 1e-3, "adam")
    assert (ssa.batch_norm, ssa.trainable, ssa.steps) == ("batch", "affine", 1)
    assert issubclass(regtta.SSA, GradientMethod)
    restoration = regtta.FeatureRestoration()
    assert (restoration.bins, restoration.temperature, restoration.lr) == (8, 0.01, 1e-4)
    minimization = regtta.VarianceMinimization()
    assert (minimization.views, minimization.lr, minimization.optimizer) == (32, 1e-3, "adam")
    assert (minimization.trainable, minimization.batch_norm) == ("extractor", "batch")
    ttt = regtta.TTT()
    assert (ttt.optimizer, ttt.lr, ttt.trainable, ttt.batch_norm) == ("sgd", 1e-3, "extractor", "batch")
    rsd, tent, oracle = regtta.RSD(), regtta.Tent(), regtta.Oracle()
    assert (rsd.k, rsd.mismatch, rsd.lr) == (100, 0.1, 1e-3)
    assert {(m.optimizer, m.trainable, m.lr) for m in (rsd, tent, oracle)} == {("adam", "affine", 1e-3)}
    assert regtta.Prototype().rescale
