"""Label-free monitoring of a stream: signals of distribution shift, alarms on them, and writers."""

from regtta.monitoring.alarms import (
    DEFAULT_ALARMS,
    Alarm,
    AlarmWatch,
    LabelShiftAlarm,
    Lasting,
    NotHelping,
    RefusedAlarm,
    RiskAlarm,
    ShiftAlarm,
    UnsteadyAlarm,
)
from regtta.monitoring.drift import DriftAlarm
from regtta.monitoring.estimator import FEATURES, SignalEstimator, features_of
from regtta.monitoring.monitor import Monitor
from regtta.monitoring.signals import NUMBERS, Evidence, Outputs, Shift, Signals
from regtta.monitoring.writers import Event, JsonLines, News, PrometheusText, TensorBoard, Writer

__all__ = [
    "DEFAULT_ALARMS",
    "FEATURES",
    "NUMBERS",
    "Alarm",
    "AlarmWatch",
    "DriftAlarm",
    "Event",
    "Evidence",
    "JsonLines",
    "LabelShiftAlarm",
    "Lasting",
    "Monitor",
    "News",
    "NotHelping",
    "Outputs",
    "PrometheusText",
    "RefusedAlarm",
    "RiskAlarm",
    "Shift",
    "ShiftAlarm",
    "SignalEstimator",
    "Signals",
    "TensorBoard",
    "UnsteadyAlarm",
    "Writer",
    "features_of",
]
