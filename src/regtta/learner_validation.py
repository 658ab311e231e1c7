"""Checks on the saved state of a learner, made before anything is loaded; states of earlier formats are brought up."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regtta.batch_norm import BatchNormSwitch, never_negative
from regtta.custom_optimizer_state import CustomOptimizerState
from regtta.errors import NewerFormatError
from regtta.flat_optimizer_state import FlatOptimizerState
from regtta.state_validation import invalid, require_count, require_like, require_mapping, validate_part

STATE_FORMAT = 2  # 1 kept the optimizer's state in the order of memory

OptimizerState = FlatOptimizerState | CustomOptimizerState


@dataclass(frozen=True)
class LearnerParts:
    """What a learner's state is of.

    Attributes:
        model: the copy that adapts.
        origin: all that can move as it was when the adapter was made, by name.
        optimizer: the optimizer's state, where there is an optimizer.
        rule: of the method.
        batch_norm: the BatchNorm layers.
    """

    model: nn.Module
    origin: Mapping[str, Tensor]
    optimizer: OptimizerState | None
    rule: object
    batch_norm: BatchNormSwitch

    def validated(self, state: object, path: str) -> dict[str, Any]:
        """Return a state of this format or an earlier one in this format; raise a StateError for any other.

        Nothing is loaded. What users' own rules and optimizers keep is checked as far as it is known.
        """
        found = {"format": 1, **require_mapping(path, state)}
        if require_count(f"{path}/format", found["format"], least=1) > STATE_FORMAT:
            raise NewerFormatError(
                f"The state has format {found['format']}, newer than {STATE_FORMAT}, the newest that this version of "
                "regtta reads. Upgrade regtta."
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
