"""Label-free monitoring of a stream: signals of distribution shift, alarms on them, and writers."""

from regtta.monitoring.alarms import (
    DEFAULT_ALARMS,
    Alarm,
    AlarmState,
    LabelShiftAlarm,
    NonstationarityAlarm,
    NotHelping,
    PersistentAlarm,
    RejectionAlarm,
    RiskAlarm,
    ShiftAlarm,
)
from regtta.monitoring.drift import DriftAlarm
from regtta.monitoring.estimator import RISK_FEATURES, SignalEstimator, risk_features
from regtta.monitoring.monitor import Monitor
from regtta.monitoring.signals import SCALARS, Evidence, FeatureShift, OutputShift, Signals
from regtta.monitoring.writers import Event, JsonLines, MonitorReport, PrometheusText, TensorBoard, Writer

__all__ = [
    "DEFAULT_ALARMS",
    "RISK_FEATURES",
    "SCALARS",
    "Alarm",
    "AlarmState",
    "DriftAlarm",
    "Event",
    "Evidence",
    "FeatureShift",
    "JsonLines",
    "LabelShiftAlarm",
    "Monitor",
    "MonitorReport",
    "NonstationarityAlarm",
    "NotHelping",
    "OutputShift",
    "PersistentAlarm",
    "PrometheusText",
    "RejectionAlarm",
    "RiskAlarm",
    "ShiftAlarm",
    "SignalEstimator",
    "Signals",
    "TensorBoard",
    "Writer",
    "risk_features",
]
