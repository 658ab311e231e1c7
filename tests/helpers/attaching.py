"""Attaching callbacks to an adapter that exists."""

from typing import TypeVar

import regtta


class Views(regtta.Callback):
    """Callback that collects the views of all batches."""

    def __init__(self) -> None:
        self.views: list[regtta.StepView] = []

    def wants_view(self, index: int) -> bool:
        return True

    def on_view(self, adapter: regtta.Adapter, view: regtta.StepView) -> None:
        self.views.append(view)


AnyCallback = TypeVar("AnyCallback", bound=regtta.Callback)


def attach(callback: AnyCallback, adapter: regtta.Adapter, *others: regtta.Callback) -> AnyCallback:
    """Add ``others`` and ``callback`` to the adapter, and return ``callback``."""
    for each in (*others, callback):
        adapter.add_callback(each)
    return callback
