"""Names of classes in files: a renamed class keeps the name with which existing files were written."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

import regtta
from regtta.guards import Guard
from regtta.methods import Method, Sum
from regtta.monitoring import Alarm, NonstationarityAlarm, RejectionAlarm, ShiftAlarm
from regtta.persistence import serialized_name, to_dict, to_dict_v0_1_0

# Written into checkpoints, run stores and reports. Never change a value; a renamed class changes its key alone.
METHOD_NAMES = {
    "ActMAD": "ActMAD",
    "Auto": "Auto",
    "BNAdapt": "BNAdapt",
    "CWSA": "CWSA",
    "Consistency": "Consistency",
    "DareGram": "DareGram",
    "FeatureAlignment": "FeatureAlignment",
    "FeatureRestoration": "FeatureRestoration",
    "NoAdaptation": "Source",
    "Oracle": "Oracle",
    "PSC": "PSC",
    "Prototype": "Prototype",
    "RSD": "RSD",
    "RecalibrateOnce": "RecalibrateOnce",
    "Recentre": "Recentre",
    "Recolour": "Recolour",
    "SSA": "SSA",
    "Sum": "Sum",
    "TTT": "TTT",
    "Tent": "Tent",
    "VarianceMinimization": "VarianceMinimization",
}
GUARD_NAMES = {
    "BoundedDisplacement": "BoundedDisplacement",
    "BoundedLoss": "BoundedLoss",
    "FiniteInputs": "FiniteInputs",
    "FiniteStep": "FiniteStep",
    "Gate": "Gate",
    "HealthCheck": "HealthCheck",
    "LabelShiftGuard": "BeyondReweighting",
    "MinBatchSize": "SeveralSamples",
    "NonConstantInputs": "VariedInputs",
    "OutlierRows": "OutlierRows",
    "OutputRange": "OutputRange",
    "RepairableShift": "RepairableShift",
    "StationarityGuard": "SteadyStream",
    "SubspaceEnergy": "SubspaceEnergy",
}
ALARM_NAMES = {
    "DriftAlarm": "DriftAlarm",
    "LabelShiftAlarm": "LabelShiftAlarm",
    "NonstationarityAlarm": "UnsteadyAlarm",
    "NotHelping": "NotHelping",
    "RejectionAlarm": "RefusedAlarm",
    "RiskAlarm": "RiskAlarm",
    "ShiftAlarm": "ShiftAlarm",
}
BASES = {Method: METHOD_NAMES, Guard: GUARD_NAMES, Alarm: ALARM_NAMES}


def subclasses(base: type) -> Iterator[type]:
    for cls in base.__subclasses__():
        yield cls
        yield from subclasses(cls)


def library_classes(base: type) -> dict[str, type]:
    """Return the concrete subclasses of ``base`` in the library, by name."""
    found = {cls.__name__: cls for cls in subclasses(base) if cls.__module__.startswith("regtta.")}
    return {name: cls for name, cls in found.items() if not inspect.isabstract(cls)}


def instance_of(cls: type) -> object:
    return Sum(terms=(regtta.SSA(), regtta.Tent())) if cls is Sum else cls()


@pytest.mark.parametrize("base", BASES)
def test_every_class_of_the_library_is_described_by_its_first_name(base):
    found = {name: instance_of(cls) for name, cls in library_classes(base).items()}
    assert {name: to_dict(options)["type"] for name, options in found.items()} == BASES[base]
    assert {name: to_dict_v0_1_0(options)["type"] for name, options in found.items()} == BASES[base]


@pytest.mark.parametrize("base", BASES)
def test_no_two_classes_share_a_name_in_files(base):
    assert len(set(BASES[base].values())) == len(BASES[base])


def test_events_name_alarms_as_files_do():
    alarms = [cls() for cls in library_classes(Alarm).values()]
    assert {type(alarm).__name__: alarm.name for alarm in alarms} == ALARM_NAMES


def test_a_subclass_does_not_inherit_the_serialized_name():
    @dataclass(frozen=True)
    class Mine(RejectionAlarm):
        share: float = 0.25

    assert serialized_name(RejectionAlarm) == "RefusedAlarm"
    assert to_dict(Mine()) == {"type": "Mine", "share": 0.25, "batches": 32}
    assert Mine().name == "Mine"


def test_renamed_classes_inside_options():
    @dataclass(frozen=True)
    class Options:
        cls: type = NonstationarityAlarm
        others: tuple[object, ...] = (NonstationarityAlarm(), ShiftAlarm)

        serialized_name: ClassVar[str] = "FormerOptions"

    assert to_dict(Options()) == {
        "type": "FormerOptions",
        "cls": "UnsteadyAlarm",
        "others": [{"type": "UnsteadyAlarm", "batches": 4}, "ShiftAlarm"],
    }
