"""Weighted sums of methods, such as Tent + SSA in the paper's classification tables."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regtta.errors import OptionError
from regtta.methods.base import GradientMethod, MethodContext
from regtta.methods.rules import Batch, Buffered, Rule, Update
from regtta.options import check_positive
from regtta.persistence import require_mapping, validate_part
from regtta.statistics import StatisticsCollector


@dataclass(frozen=True, kw_only=True)
class Sum(GradientMethod):
    """Weighted sum of the losses of several methods.

    ``L = Σ_j weight_j · L_j``. Trainable parameters, optimizer and BatchNorm mode are those of the sum; the terms' own
    are ignored.

    Args:
        terms: methods that minimise a loss.
        weights: one per term; 1 by default.
    """

    terms: tuple[GradientMethod, ...]
    weights: tuple[float, ...] = ()

    paper: ClassVar[str] = "a sum of methods"

    def __post_init__(self) -> None:
        """Validate fields, and require what any term requires."""
        super().__post_init__()
        if not isinstance(self.terms, tuple | list) or not isinstance(self.weights, tuple | list):
            raise OptionError(f"Expected terms and weights as tuples, found {self.terms!r} and {self.weights!r}.")
        for term in self.terms:
            if not isinstance(term, GradientMethod):
                raise OptionError(f"{type(term).__name__} has no loss to minimise, so it cannot be part of a sum.")
        weights = self.weights or (1.0,) * len(self.terms)
        if len(self.terms) < 2 or len(weights) != len(self.terms):
            raise OptionError(f"Expected two terms or more and one weight per term, found {self.terms} and {weights}.")
        for weight in weights:
            check_positive("a weight", weight)
        # Class attributes in every other method; a sum derives them from its terms.
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "name", "+".join(term.name for term in self.terms))
        for need in ("needs_source", "needs_head", "takes_targets"):
            object.__setattr__(self, need, any(getattr(term, need) for term in self.terms))

    @property
    def supports_single_samples(self) -> bool:
        """True if every term can learn from one sample."""
        return all(term.supports_single_samples for term in self.terms)

    def statistics_collectors(self) -> Mapping[str, StatisticsCollector]:
        """Return the collectors of all terms."""
        return {name: collector for term in self.terms for name, collector in term.statistics_collectors().items()}

    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream."""
        return _SumRule([term.start(context) for term in self.terms], self.weights)


class _SumRule(Rule):
    def __init__(self, rules: list[Rule], weights: tuple[float, ...]) -> None:
        self.rules = rules
        self.weights = weights

    @property
    def capturable(self) -> bool:
        """True if every term can be replayed."""
        return all(rule.capturable for rule in self.rules)

    @property
    def recordings(self) -> tuple[AbstractContextManager[object], ...]:
        """Recordings that the rules of all terms ask for."""
        return tuple(recording for rule in self.rules for recording in rule.recordings)

    def update(self, batch: Batch) -> Update:
        """Return the weighted sum of the losses, or no step if any term takes none."""
        answers = [rule.update(batch) for rule in self.rules]  # every term, as each may store the batch
        losses = [answer for answer in answers if isinstance(answer, Tensor)]
        if len(losses) < len(answers):
            others = [answer for answer in answers if not isinstance(answer, Tensor)]
            return next((answer for answer in others if isinstance(answer, Buffered)), others[0])
        return torch.stack([weight * loss for weight, loss in zip(self.weights, losses, strict=True)]).sum()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all terms."""
        return {str(index): rule.state_dict() for index, rule in enumerate(self.rules)}

    def validate_state(self, state: object, path: str) -> None:
        """Raise StateError if the state of a term is invalid."""
        found = require_mapping(path, state, [str(index) for index in range(len(self.rules))])
        for index, rule in enumerate(self.rules):
            validate_part(rule, found[str(index)], f"{path}/{index}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all terms from :meth:`state_dict`."""
        for index, rule in enumerate(self.rules):
            rule.load_state_dict(state[str(index)])
