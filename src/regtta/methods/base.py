"""Base classes of adaptation methods.

A method is a frozen dataclass of hyperparameters. :meth:`Method.start` returns the :class:`~regtta.methods.rules.Rule`
of one stream, which maps each batch to a loss, a new head or no update; the adapter runs the model and the optimizer.
Methods derive from the abstract classes here and never from each other.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from regtta.errors import HeadError, ModelError, StatisticsError
from regtta.methods.rules import Rule
from regtta.models import BATCH_NORM_MODES, TRAINABLE, BatchNormMode, Trainable, check_assignable
from regtta.options import (
    added_later,
    check_choice,
    check_fraction,
    check_momentum,
    check_non_negative,
    check_positive,
    check_positive_int,
)
from regtta.statistics import SourceStatistics, StatisticsCollector

OptimizerFactory = Callable[..., torch.optim.Optimizer]
OptimizerName = Literal["adam", "adamw", "sgd", "rmsprop"]

OPTIMIZERS: Mapping[str, OptimizerFactory] = MappingProxyType(
    {
        # Fused implementations run the whole update in one kernel.
        "adam": functools.partial(torch.optim.Adam, fused=True),
        "adamw": functools.partial(torch.optim.AdamW, fused=True),
        "sgd": functools.partial(torch.optim.SGD, fused=True),
        "rmsprop": torch.optim.RMSprop,
    }
)


@dataclass(frozen=True)
class MethodContext:
    """Model and source statistics at the start of a stream.

    Attributes:
        model: the adapter's copy of the model; must not be modified.
        head: head of the model, if the method needs one; a copy of its weights if it is not one ``nn.Linear``.
        source: source statistics, if given.
    """

    model: nn.Module
    head: nn.Linear | None
    source: SourceStatistics | None

    def require_source(self) -> SourceStatistics:
        """Return the source statistics, or raise StatisticsError if there are none."""
        if self.source is None:
            raise StatisticsError("This method needs source statistics: regtta.collect(model, loader).")
        return self.source

    def require_head(self) -> nn.Linear:
        """Return the head, or raise HeadError if there is none."""
        if self.head is None:
            raise HeadError("This method needs the model's head. Pass head=<name>.")
        return self.head

    def require_bias(self, method: str) -> None:
        """Raise ModelError unless the head has a bias that can be set; ``method`` is named in the message."""
        head = self.require_head()
        if head.bias is None:
            raise ModelError(
                f"Expected a head with a bias, which {method} moves; that of {type(self.model).__name__} has none. "
                "Create the layer with bias=True and a bias of 0, or use another method, such as ssa."
            )
        check_assignable(head, "bias")

    def extra(self, method: str, key: str) -> Tensor:
        """Return the tensor ``key`` that ``collect(..., methods=[...])`` stored for ``method``."""
        stored = {} if self.source is None else self.source.extras
        if f"{method}/{key}" not in stored:
            raise StatisticsError(
                f"{method} needs source statistics beyond the moments, which the given ones do not contain. Collect "
                f"them with regtta.collect(model, loader, methods=[regtta.create_method({method!r})])."
            )
        return stored[f"{method}/{key}"]

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the rule's arithmetic: that of the head, at least float32."""
        return torch.promote_types(self.require_head().weight.dtype, torch.float32)

    @property
    def device(self) -> torch.device:
        """Device of the head."""
        return self.require_head().weight.device


@dataclass(frozen=True)
class Schedule:
    """Trainable parameters, optimizer and number of steps with which the adapter runs a method.

    An ``elementwise`` optimizer updates every element independently of the parameter it belongs to. Without an
    optimizer the rule may return a :class:`~regtta.methods.rules.NewHead`. ``restore`` is the share ρ of the source
    parameters in those after every step. ``bn_momentum`` is the momentum of BatchNorm, ``None`` each layer's own.
    """

    trainable: Trainable | None = None
    batch_norm: BatchNormMode = "source"
    prior: int = 1
    steps: int = 1
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None
    elementwise: bool = False
    restore: float = 0.0
    bn_momentum: float | None = None

    @property
    def may_replace_head(self) -> bool:
        """True if a step can replace the head of the model."""
        return self.optimizer is None


class Method(ABC):
    """Abstract base of adaptation methods; concrete methods are frozen dataclasses.

    Class attributes:
        name: key in the registry and on the command line.
        paper: reference.
        needs_source: True if source statistics are required.
        needs_head: True if the method uses the features or the head.
        takes_targets: True if the method learns from labels.
        extra_statistics: description of the source statistics required beyond the moments.
        replaces_head: True if the method replaces the weights of the head, which must then be one ``nn.Linear``.
        adapts: False if the method never changes the model; batches are then only predicted.
        selective: True if the adapter adds :class:`regtta.guards.RepairableShift` to the guards, so that the model
            learns only from shifts that adaptation repairs.
        revision: increased when the method's results change, so that experiment runs of an older revision are repeated.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    needs_source: ClassVar[bool] = False
    needs_head: ClassVar[bool] = False
    takes_targets: ClassVar[bool] = False
    extra_statistics: ClassVar[str] = ""
    replaces_head: ClassVar[bool] = False
    adapts: ClassVar[bool] = True
    selective: ClassVar[bool] = False
    revision: ClassVar[int] = 0

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """Trainable parameters, optimizer and number of steps."""

    @property
    def supports_single_samples(self) -> bool:
        """True if the method can learn from a batch of one sample, as it retains previous ones."""
        return False

    @abstractmethod
    def start(self, context: MethodContext) -> Rule:
        """Return the rule of a new stream."""

    def statistics_collectors(self) -> Mapping[str, StatisticsCollector]:
        """Return the collectors of source statistics beyond the moments, by method name; empty by default."""
        return {}


@dataclass(frozen=True, kw_only=True)
class GradientMethod(Method):
    """Abstract base of methods that minimise a loss by gradient steps.

    Args:
        lr: learning rate.
        optimizer: ``"adam"``, ``"adamw"``, ``"sgd"``, ``"rmsprop"``, or any callable
            ``(parameters, lr=...) -> torch.optim.Optimizer``, such as
            ``functools.partial(torch.optim.SGD, momentum=0.9)``.
        batch_norm: ``"batch"`` normalises by the batch and updates the running statistics;
            ``"debiased"`` estimates the running statistics from the target alone; ``"blended"`` normalises by source
            and target statistics weighted by their sample counts, for small batches; ``"cumulative"`` is like
            ``"batch"``, with running statistics that are the mean over all target samples so far; ``"source"`` keeps
            BatchNorm as trained.
        prior: number of samples that the source statistics count as with ``batch_norm="blended"``.
        trainable: ``"affine"`` trains scale and shift of normalisation layers, in a model without any the biases;
            ``"bias"`` all biases except the head's, ``"extractor"`` everything except the head, ``"all"`` every
            parameter.
        steps: gradient steps per batch.
        restore: averaging of the trained parameters towards the source after every step, ``θ ← (1 − ρ) θ + ρ θ₀`` with
            ρ = ``restore``; 0 disables it. Running statistics of BatchNorm are not averaged.
        bn_momentum: weight m of a batch in the running statistics with ``batch_norm="batch"``, and
            ``m / (1 − (1−m)ⁿ)`` at the n-th update with ``"debiased"``; ``None`` is each layer's own, 0.1 in torch. The
            other modes have weights of their own.
    """

    lr: float = 1e-3
    optimizer: OptimizerName | OptimizerFactory = "adam"
    batch_norm: BatchNormMode = "batch"
    prior: int = 32
    trainable: Trainable = "affine"
    steps: int = 1
    restore: float = added_later(0.0)
    bn_momentum: float | None = added_later(None)

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive("lr", self.lr)
        check_positive_int("steps", self.steps)
        check_positive_int("prior", self.prior)
        check_choice("batch_norm", self.batch_norm, BATCH_NORM_MODES)
        check_choice("trainable", self.trainable, TRAINABLE)
        check_non_negative("restore", self.restore)
        if self.restore:
            check_fraction("restore", self.restore)
        check_momentum("bn_momentum", self.bn_momentum)
        if not callable(self.optimizer):
            check_choice("optimizer", self.optimizer, OPTIMIZERS.keys())

    @property
    def schedule(self) -> Schedule:
        """Schedule given by the options above."""
        factory = self.optimizer if callable(self.optimizer) else OPTIMIZERS[self.optimizer]
        return Schedule(
            trainable=self.trainable,
            batch_norm=self.batch_norm,
            prior=self.prior,
            steps=self.steps,
            optimizer=functools.partial(factory, lr=self.lr),
            elementwise=not callable(self.optimizer),
            restore=self.restore,
            bn_momentum=self.bn_momentum,
        )
