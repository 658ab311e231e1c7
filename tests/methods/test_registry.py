"""The registry of methods: built-in names, methods of installed packages, creation by name."""

import dataclasses
import importlib.metadata
import inspect
import logging
from importlib.metadata import EntryPoint

import pytest

import regtta
from regtta.errors import OptionError
from regtta.methods import GradientMethod, Method, create_method, method_options

BUILT_IN = [
    "source",
    "bn_adapt",
    "feature_alignment",
    "ssa",
    "feature_restoration",
    "prototype",
    "variance_minimization",
    "rsd",
    "ttt",
    "tent",
    "cwsa",
    "psc",
    "dare_gram",
    "actmad",
    "consistency",
    "recentre",
    "recolour",
    "recalibrate_once",
    "oracle",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThirdParty(regtta.Tent):
    """Method of another package."""

    sharpness: float = 1.0


class Distribution:
    """Stand-in for the distribution that an entry point belongs to."""

    def __init__(self, name):
        self.name = name


@pytest.fixture
def install(monkeypatch):
    """Return a function that pretends that packages with entry points ``{(package, name): object}`` are installed."""
    found = importlib.metadata.entry_points

    def pretend(entries):
        made = []
        for (package, name), value in entries.items():
            entry = EntryPoint(name, value, "regtta.methods")
            vars(entry)["dist"] = Distribution(package)
            made.append(entry)
        monkeypatch.setattr(
            importlib.metadata,
            "entry_points",
            lambda **options: made if options == {"group": "regtta.methods"} else found(**options),
        )

    return pretend


OWN = f"{__name__}:ThirdParty"


def test_registry_is_read_only_and_maps_names_to_classes():
    assert list(regtta.METHODS) == BUILT_IN
    assert len(regtta.METHODS) == len(BUILT_IN)
    assert all(cls.name == name for name, cls in regtta.METHODS.items())
    with pytest.raises(TypeError):
        regtta.METHODS["mine"] = regtta.SSA


@pytest.mark.parametrize("name", regtta.METHODS)
def test_every_method_is_a_documented_frozen_dataclass_with_defaults(name):
    cls = regtta.METHODS[name]
    assert dataclasses.is_dataclass(cls)
    assert cls() == cls()
    assert cls.__bases__[0] is Method or inspect.isabstract(cls.__bases__[0])
    assert cls.paper
    assert cls.__doc__.splitlines()[0].endswith((".", ".\n"))
    documentation = "".join(ancestor.__doc__ or "" for ancestor in cls.__mro__)
    for field in dataclasses.fields(cls):
        assert f"{field.name}: " in documentation, f"{name} does not document {field.name}"
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(cls(), field.name, None)


def test_create_method():
    assert regtta.create_method("ssa", k=25, lr=1e-4) == regtta.SSA(k=25, lr=1e-4)
    assert isinstance(regtta.create_method("bn_adapt"), regtta.BNAdapt)
    with pytest.raises(OptionError, match="Did you mean 'ssa'"):
        regtta.create_method("ssaa")
    with pytest.raises(OptionError, match="SSA has no option 'learning_rate'"):
        regtta.create_method("ssa", learning_rate=1)
    with pytest.raises(OptionError, match="NoAdaptation has no option 'lr'; it has none"):
        regtta.create_method("source", lr=1)


def test_defaults_of_the_papers():
    ssa = regtta.SSA.from_paper()
    assert (ssa.k, ssa.weighting, ssa.metric, ssa.lr, ssa.optimizer) == (100, True, "kl", 1e-3, "adam")
    assert (ssa.batch_norm, ssa.bn_momentum, ssa.clip) == ("batch", None, False)
    assert (ssa.trainable, ssa.steps, ssa.unbiased, ssa.window) == ("affine", 1, True, 0)
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


def test_methods_of_installed_packages_are_included(install):
    install({("regtta-sharp", "sharp"): OWN})
    assert list(regtta.METHODS) == [*BUILT_IN, "sharp"]
    assert "sharp" in regtta.METHODS
    assert regtta.METHODS["sharp"] is ThirdParty
    assert create_method("sharp", sharpness=2.0) == ThirdParty(sharpness=2.0)
    assert create_method("ssa+0.5*sharp", sharpness=2.0).terms == (regtta.SSA(), ThirdParty(sharpness=2.0))
    assert method_options("sharp", ["sharpness=3"]) == {"sharpness": 3.0}
    with pytest.raises(OptionError, match="Did you mean 'sharp'"):
        create_method("sharpp")


def test_built_in_names_are_found_without_a_search_for_packages(monkeypatch):
    def fail(**options):
        raise AssertionError(options)

    monkeypatch.setattr(importlib.metadata, "entry_points", fail)
    assert "ssa" in regtta.METHODS
    assert create_method("tent+ssa").terms == (regtta.Tent(), regtta.SSA())


def test_built_in_names_cannot_be_overridden(install, caplog):
    install({("regtta-other", "ssa"): OWN})
    with caplog.at_level(logging.WARNING):
        assert list(regtta.METHODS) == BUILT_IN
        assert regtta.METHODS["ssa"] is regtta.SSA
        assert list(regtta.METHODS) == BUILT_IN
    assert [record.getMessage() for record in caplog.records] == [
        "The method 'ssa' of the package regtta-other is ignored: regtta has a method of that name."
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "a_package_that_is_missing:Sharp",
            "'sharp' of the package regtta-sharp cannot be loaded.*ModuleNotFoundError",
        ),
        (f"{__name__}:Missing", "'sharp' of the package regtta-sharp cannot be loaded.*AttributeError"),
        (f"{__name__}:BUILT_IN", "package regtta-sharp to be a concrete subclass of regtta.methods.Method"),
        (f"{__name__}:Distribution", "package regtta-sharp to be a concrete subclass of regtta.methods.Method"),
        ("regtta.methods:GradientMethod", "package regtta-sharp to be a concrete subclass of regtta.methods.Method"),
    ],
)
def test_an_entry_point_that_is_no_method_raises_an_error_that_names_the_package(install, value, message):
    install({("regtta-sharp", "sharp"): value})
    assert "sharp" in regtta.METHODS
    with pytest.raises(OptionError, match=message):
        create_method("sharp")
    assert create_method("ssa") == regtta.SSA()


def test_two_packages_with_the_same_method(install):
    install({("regtta-sharp", "sharp"): OWN, ("regtta-other", "sharp"): OWN})
    assert list(regtta.METHODS) == [*BUILT_IN, "sharp"]
    with pytest.raises(OptionError, match="'sharp' is registered by regtta-sharp and regtta-other"):
        create_method("sharp")
