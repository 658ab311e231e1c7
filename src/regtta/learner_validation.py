"""Validation of the saved state of a learner, and conversion of states in earlier formats."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regtta.batch_norm import BatchNormSwitch, never_negative
from regtta.custom_optimizer_state import CustomOptimizerState
from regtta.errors import NewerFormatError
from regtta.flat_optimizer_state import FlatOptimizerState
from regtta.state_validation import invalid, require_count, require_like, require_mapping, validate_part

STATE_FORMAT = 2  # format 1 stored the optimizer's state in memory order

OptimizerState = FlatOptimizerState | CustomOptimizerState


@dataclass(frozen=True)
class LearnerParts:
    """Components of a learner that its state is validated against.

    Attributes:
        model: the copy of the model that is adapted.
        origin: initial values of all tensors that adaptation changes, by name.
        optimizer: the optimizer's state, if there is an optimizer.
        rule: the update rule of the method.
        batch_norm: the BatchNorm layers.
    """

    model: nn.Module
    origin: Mapping[str, Tensor]
    optimizer: OptimizerState | None
    rule: object
    batch_norm: BatchNormSwitch

    def validated(self, state: object, path: str) -> dict[str, Any]:
        """Validate a state and return it in the current format, converted from an earlier format if necessary.

        Nothing is loaded. States of user-defined rules and optimizers are validated as far as their schema is known.

        Raises:
            StateError: the state is invalid.
            NewerFormatError: the state has a newer format.
        """
        found = {"format": 1, **require_mapping(path, state)}
        if require_count(f"{path}/format", found["format"], least=1) > STATE_FORMAT:
            raise NewerFormatError(
                f"Expected a state of format {STATE_FORMAT} or older, found format {found['format']}. Upgrade regtta."
            )
        require_mapping(path, found, ("format", "tensors", "optimizer", "rule", "batch_norm"))
        self._validate_tensors(found["tensors"], f"{path}/tensors")
        if self.optimizer is None:
            require_mapping(f"{path}/optimizer", found["optimizer"], ())
        else:
            if found["format"] == 1:
                found["optimizer"] = self.optimizer.upgraded(found["optimizer"], f"{path}/optimizer")
            self.optimizer.validate(found["optimizer"], f"{path}/optimizer")
        validate_part(self.rule, found["rule"], f"{path}/rule")
        self.batch_norm.validate_state(found["batch_norm"], f"{path}/batch_norm")
        return found | {"format": STATE_FORMAT}

    def _validate_tensors(self, state: object, path: str) -> None:
        least_zero = never_negative(self.model)
        for name, tensor in require_mapping(path, state, self.origin.keys()).items():
            began = self.origin[name]
            value = require_like(f"{path}/{name}", tensor, began)
            if name in least_zero and not bool(((value >= 0) | (value == began.to(value.device))).all()):
                raise invalid(f"{path}/{name}", "at least 0 everywhere", float(value.min()))
