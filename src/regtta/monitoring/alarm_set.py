"""Set of the alarms of one stream, with the events that they emit."""

from collections.abc import Mapping, Sequence
from typing import Any

from regtta.monitoring.alarms import Alarm
from regtta.monitoring.signals import Signals
from regtta.monitoring.writers import Event
from regtta.persistence import require_mapping, require_str, validate_part


class AlarmSet:
    """All alarms of one stream, which emits an event when an alarm is raised or cleared."""

    def __init__(self, alarms: Sequence[Alarm]) -> None:
        self.alarms = tuple(alarms)
        self.states = [alarm.start() for alarm in self.alarms]
        self.messages: list[str | None] = [None] * len(self.alarms)

    def check(self, signals: Signals) -> list[Event]:
        """Update all alarms and return the events of those that were raised or cleared."""
        events = []
        for number, (alarm, alarm_state) in enumerate(zip(self.alarms, self.states, strict=True)):
            before, now = self.messages[number], alarm_state.check(signals)
            self.messages[number] = now
            if now is not None and before is None:
                events.append(Event("raised", alarm.name, signals.index, now, alarm.action))
            if now is None and before is not None:
                events.append(Event("cleared", alarm.name, signals.index, before, ""))
        return events

    def active(self) -> dict[str, bool]:
        """Return a dict from the name of every alarm to True if it is raised."""
        found: dict[str, bool] = {}
        for alarm, message in zip(self.alarms, self.messages, strict=True):
            found[alarm.name] = found.get(alarm.name, False) or message is not None
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all alarms, by position."""
        return {
            str(number): {"said": message, "watch": alarm_state.state_dict()}
            for number, (message, alarm_state) in enumerate(zip(self.messages, self.states, strict=True))
        }

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError if an alarm rejects its part of ``state``."""
        found = require_mapping(path, state, [str(number) for number in range(len(self.states))])
        for number, alarm_state in enumerate(self.states):
            at = f"{path}/{number}"
            part = require_mapping(at, found[str(number)], ("said", "watch"))
            if part["said"] is not None:
                require_str(f"{at}/said", part["said"])
            validate_part(alarm_state, part["watch"], f"{at}/watch")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from :meth:`state_dict`."""
        for number, alarm_state in enumerate(self.states):
            self.messages[number] = state[str(number)]["said"]
            alarm_state.load_state_dict(state[str(number)]["watch"])
