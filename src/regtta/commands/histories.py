"""The steps of a stream so far, kept beside its checkpoint so that a resumed command writes all of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from regtta.errors import MismatchError
from regtta.steps import Diagnostics, Step, Verdict


class StepHistory:
    """Remembers every step: predictions and numbers as tensors, for there may be many.

    Args:
        about: what the stream is of, in plain values by option; a history of another stream is refused.

    Attributes:
        steps: so far, in order.
    """

    def __init__(self, about: Mapping[str, object]) -> None:
        self.about = dict(about)
        self.steps: list[Step] = []

    def see(self, step: Step) -> None:
        """Add a step."""
        # On the CPU, and a copy: a batch's predictions may be a view of more.
        self.steps.append(replace(step, predictions=step.predictions.detach().cpu().clone()))

    def state_dict(self) -> dict[str, Any]:
        """All of it, as tensors and plain values."""
        told = [step.diagnostics for step in self.steps]
        verdicts = {verdict: number for number, verdict in enumerate(dict.fromkeys(each.verdict for each in told))}
        numbers = [(each.loss, each.gradient_norm, each.displacement) for each in told]
        return {
            "about": self.about,
            "indices": torch.tensor([step.index for step in self.steps], dtype=torch.int64),
            "sizes": torch.tensor([len(step.predictions) for step in self.steps], dtype=torch.int64),
            "excluded": [list(step.excluded_rows) for step in self.steps],
            "predictions": torch.cat([step.predictions for step in self.steps]) if self.steps else torch.empty(0),
            "numbers": torch.tensor([[0.0 if n is None else n for n in row] for row in numbers], dtype=torch.float64),
            "known": torch.tensor([[n is not None for n in row] for row in numbers], dtype=torch.bool),
            "verdicts": [(verdict.learned, verdict.reason, verdict.returned) for verdict in verdicts],
            "verdict": torch.tensor([verdicts[each.verdict] for each in told], dtype=torch.int64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state_dict`, which must be of the same stream."""
        for option, value in self.about.items():
            if state["about"].get(option) != value:
                raise MismatchError(
                    f"The checkpoint is of a stream with another {option}: expected {value}, found "
                    f"{state['about'].get(option)}. Run the command as it was begun, or begin anew with --force."
                )
        verdicts = [Verdict(*verdict) for verdict in state["verdicts"]]
        rows = zip(state["numbers"].tolist(), state["known"].tolist(), strict=True)
        numbers = [[n if known else None for n, known in zip(*row, strict=True)] for row in rows]
        self.steps = [
            Step(
                index,
                predictions.clone(),
                Diagnostics(loss, norm, 0.0 if moved is None else moved, verdicts[which]),
                tuple(excluded),
            )
            for index, predictions, (loss, norm, moved), which, excluded in zip(
                state["indices"].tolist(),
                state["predictions"].split(state["sizes"].tolist()) if len(state["sizes"]) else (),
                numbers,
                state["verdict"].tolist(),
                state.get("excluded", [()] * len(numbers)),  # files of 0.1.0 have none
                strict=True,
            )
        ]
