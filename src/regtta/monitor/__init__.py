"""Label-free monitoring of a stream: signals of distribution shift, alarms on them, and writers."""

from regtta.monitor.alarms import (
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
from regtta.monitor.drift import DriftAlarm
from regtta.monitor.events import Event
from regtta.monitor.prometheus import PrometheusText
from regtta.monitor.signals import NUMBERS, Evidence, Outputs, Shift, Signals
from regtta.monitor.watching import Monitor
from regtta.monitor.writers import JsonLines, News, TensorBoard, Writer

__all__ = [
    "DEFAULT_ALARMS",
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
    "Signals",
    "TensorBoard",
    "UnsteadyAlarm",
    "Writer",
]
