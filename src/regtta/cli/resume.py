"""Resuming ``regtta adapt`` from a checkpoint, with the history of steps that it stores."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch

from regtta.adapter import Adapter
from regtta.cli.adapt_options import AdaptOptions, Protocol
from regtta.cli.outputs import check_suffix
from regtta.errors import MismatchError, OptionError
from regtta.persistence import (
    require_bool,
    require_mapping,
    require_sequence,
    require_str,
    require_tensor,
    state_error,
)
from regtta.types import Callback, Diagnostics, Step, Verdict


class StepHistory(Callback):
    """Callback that keeps the steps of a stream, serialised as tensors in its checkpoint.

    Args:
        about: options that identify the stream, as plain values; a history with other options is rejected.

    Attributes:
        steps: steps so far, in order.
    """

    state_key: ClassVar[str | None] = "companion"

    def __init__(self, about: Mapping[str, object]) -> None:
        self.about = dict(about)
        self.steps: list[Step] = []

    def on_step(self, adapter: Adapter, step: Step) -> None:  # noqa: ARG002 - the step is all it stores
        """Append a step."""
        # A copy on the CPU, as the predictions may be a view of a larger tensor.
        self.steps.append(replace(step, predictions=step.predictions.detach().cpu().clone()))

    def state_dict(self) -> dict[str, Any]:
        """Return the history as tensors and plain values."""
        diagnostics = [step.diagnostics for step in self.steps]
        verdicts = {
            verdict: number for number, verdict in enumerate(dict.fromkeys(each.verdict for each in diagnostics))
        }
        numbers = [(each.loss, each.gradient_norm, each.displacement) for each in diagnostics]
        return {
            "about": self.about,
            "indices": torch.tensor([step.index for step in self.steps], dtype=torch.int64),
            "sizes": torch.tensor([len(step.predictions) for step in self.steps], dtype=torch.int64),
            "excluded": torch.tensor([row for step in self.steps for row in step.excluded_rows], dtype=torch.int64),
            "excluded_counts": torch.tensor([len(step.excluded_rows) for step in self.steps], dtype=torch.int64),
            "predictions": torch.cat([step.predictions for step in self.steps]) if self.steps else torch.empty(0),
            "numbers": torch.tensor([[0.0 if n is None else n for n in row] for row in numbers], dtype=torch.float64),
            "known": torch.tensor([[n is not None for n in row] for row in numbers], dtype=torch.bool),
            "verdicts": [(verdict.learned, verdict.reason, verdict.returned) for verdict in verdicts],
            "verdict": torch.tensor([verdicts[each.verdict] for each in diagnostics], dtype=torch.int64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from :meth:`state_dict`, or raise MismatchError if it is of another stream."""
        state = _validated(state)
        for option, value in self.about.items():
            if state["about"].get(option) != value:
                raise MismatchError(
                    f"The checkpoint is of a stream with another {option}: expected {value}, found "
                    f"{state['about'].get(option)}. Run the original command, or start over with --force."
                )
        verdicts = [Verdict(*verdict) for verdict in state["verdicts"]]
        rows = zip(state["numbers"].tolist(), state["known"].tolist(), strict=True)
        numbers = [[n if known else None for n, known in zip(*row, strict=True)] for row in rows]
        self.steps = [
            Step(
                index,
                predictions.clone(),
                Diagnostics(loss, norm, 0.0 if moved is None else moved, verdicts[which]),
                tuple(excluded.tolist()),
            )
            for index, predictions, (loss, norm, moved), which, excluded in zip(
                state["indices"].tolist(),
                state["predictions"].split(state["sizes"].tolist()) if len(state["sizes"]) else (),
                numbers,
                state["verdict"].tolist(),
                state["excluded"].split(state["excluded_counts"].tolist()) if len(state["sizes"]) else (),
                strict=True,
            )
        ]


_KEYS = ("about", "indices", "sizes", "predictions", "numbers", "known", "verdicts", "verdict")
_EXCLUDED = ("excluded", "excluded_counts")


def _validated(state: object) -> dict[str, Any]:
    """Return ``state`` as a dict, or raise StateError unless :meth:`StepHistory.state_dict` could have returned it."""
    found = dict(require_mapping("companion", state))
    if not any(name in found for name in _EXCLUDED):  # version 0.1.0 excluded no samples
        rows = len(found["indices"]) if isinstance(found.get("indices"), torch.Tensor) else 0
        found |= {"excluded": torch.empty(0, dtype=torch.int64), "excluded_counts": torch.zeros(rows).long()}
    require_mapping("companion", found, (*_KEYS, *_EXCLUDED))
    require_mapping("companion/about", found["about"])
    verdicts = require_sequence("companion/verdicts", found["verdicts"])
    for number, verdict in enumerate(verdicts):
        at = f"companion/verdicts/{number}"
        if len(require_sequence(at, verdict)) != 3:
            raise state_error(at, "three values", verdict)
        require_bool(at, verdict[0])
        require_str(at, verdict[1])
        require_str(at, verdict[2])
    count = len(require_tensor("companion/indices", found["indices"], (None,), torch.int64, minimum=0.0))
    sizes = require_tensor("companion/sizes", found["sizes"], (count,), torch.int64, minimum=0.0)
    which = require_tensor("companion/verdict", found["verdict"], (count,), torch.int64, minimum=0.0)
    if count and int(which.max()) >= len(verdicts):
        raise state_error("companion/verdict", f"below {len(verdicts)} everywhere", int(which.max()))
    predictions = found["predictions"]
    if not isinstance(predictions, torch.Tensor) or predictions.shape[:1] != (int(sizes.sum()),):
        raise state_error("companion/predictions", f"a tensor of {int(sizes.sum())} rows", predictions)
    counts = require_tensor("companion/excluded_counts", found["excluded_counts"], (count,), torch.int64, minimum=0.0)
    excluded = require_tensor("companion/excluded", found["excluded"], (int(counts.sum()),), torch.int64, minimum=0.0)
    if bool((excluded >= sizes.repeat_interleave(counts)).any()):
        raise state_error("companion/excluded", "rows of their batches", int(excluded.max()))
    shape = (count, 3) if count else (0,)
    for name, dtype in {"numbers": torch.float64, "known": torch.bool}.items():
        values = found[name]
        # Values are not checked: the loss of a rejected step may be NaN.
        if not isinstance(values, torch.Tensor) or values.shape != shape or values.dtype != dtype:
            raise state_error(f"companion/{name}", f"a tensor of shape {shape} and {dtype}", values)
    return found


def check_resumable(options: AdaptOptions) -> None:
    """Raise if the options contradict those about checkpoints."""
    if options.checkpoint is None:
        if options.resume or options.checkpoint_every != AdaptOptions.checkpoint_every:
            option = "--resume" if options.resume else "--checkpoint-every"
            raise OptionError(f"{option} requires --checkpoint. Pass --checkpoint FILE, or omit {option}.")
        return
    check_suffix("--checkpoint", options.checkpoint, (".safetensors",))
    if options.protocol is not Protocol.online:
        raise OptionError("--checkpoint works only with --protocol online: offline predicts after all data. Omit one.")
    if options.record is not None:
        raise OptionError(
            "--record needs an uninterrupted run from the first batch to the last. Omit it or --checkpoint."
        )
    watched = {"--monitor": options.monitor, "--prometheus": options.prometheus, "--tensorboard": options.tensorboard}
    for option, path in watched.items():
        if path is not None:
            raise OptionError(
                f"{option} appends to its output and cannot be rolled back to a checkpoint. Omit it or --checkpoint; "
                "in Python, Adapter(..., callbacks=[monitor, checkpoint]) supports both."
            )


def step_history(options: AdaptOptions, batch_size: int, *, named_columns: bool = False) -> StepHistory:
    """Return an empty history for the stream that ``options`` describe.

    Args:
        options: options of the command.
        batch_size: default number of rows per batch.
        named_columns: True if the statistics name the input columns, so that --columns cannot change the stream.
    """
    stats = options.stats
    # The adapter validates model, method and guards itself. Older checkpoints lack the options of images and --serve.
    about = {
        "--data": options.data,
        "--columns": None if named_columns else ",".join(options.columns) or None,
        "--inputs": options.inputs,
        "--output": options.output,
        "--image-size": options.image_size,
        "--image-mean": ",".join(map(str, options.image_mean)) or None,
        "--image-std": ",".join(map(str, options.image_std)) or None,
        "--labels": None if options.labels is None else str(options.labels),
        "--target": options.target,
        "--batch-size": options.batch_size or batch_size,
        "--shuffle-seed": options.shuffle_seed,
        "--serve": None if options.serve is AdaptOptions.serve else options.serve.value,
        "--stats": None if stats is None else hashlib.sha256(stats.read_bytes()).hexdigest(),
    }
    return StepHistory(about)
