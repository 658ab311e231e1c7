"""What every method is made of.

A method is a frozen dataclass of hyperparameters. ``start`` returns the :class:`Rule` of one stream:
a batch goes in, and out comes a loss to descend, a new head, or nothing. The adapter does the rest.
Methods inherit from the two abstract classes here and from no other method.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from regtta.batch_norm import BATCH_NORM_MODES, BatchNormMode
from regtta.errors import BatchError, HeadError, StatisticsError
from regtta.features import Forward
from regtta.gathering import Gatherer
from regtta.options import check_choice, check_count, check_positive
from regtta.parameters import TRAINABLE, Trainable
from regtta.state_validation import invalid, require_mapping, require_tensor
from regtta.statistics import SourceStatistics

OptimizerFactory = Callable[..., torch.optim.Optimizer]
OptimizerName = Literal["adam", "adamw", "sgd", "rmsprop"]

OPTIMIZERS: Mapping[str, OptimizerFactory] = MappingProxyType(
    {
        # Fused: the whole update is one kernel.
        "adam": functools.partial(torch.optim.Adam, fused=True),
        "adamw": functools.partial(torch.optim.AdamW, fused=True),
        "sgd": functools.partial(torch.optim.SGD, fused=True),
        "rmsprop": torch.optim.RMSprop,
    }
)


@dataclass(frozen=True)
class Batch:
    """One batch as a rule sees it.

    Attributes:
        inputs: (B, ...) on the model's device. Where samples lie in several processes, those of this one; features,
            outputs and targets are of all.
        features: (B, D) what enters the head; (B, 0) where the method needs no head.
        outputs: what the model gave, of its own shape.
        targets: labels, for the one method that takes them.
        forward: runs the model again on other inputs, in the same mode; moves no running statistics of BatchNorm.
        again: whether this is a further step on the samples of the step before.
        everywhere: takes values (B, ...), one a row of ``inputs``, to those of all processes; differentiable.
    """

    inputs: Tensor
    features: Tensor
    outputs: Tensor
    targets: Tensor | None
    forward: Callable[[Tensor], Forward]
    again: bool = False
    everywhere: Callable[[Tensor], Tensor] = lambda values: values

    def require_targets(self) -> Tensor:
        """The labels of a method that cannot do without (the adapter has seen to it)."""
        if self.targets is None:
            raise BatchError("This method learns from labels: call adapt(x, targets=y).")
        return self.targets


@dataclass(frozen=True)
class NewHead:
    """A rule's answer that replaces the head: ``weight`` (O, D), and ``bias`` (O,) or as it is."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True)
class Skip:
    """A rule's answer that it can learn nothing from this batch, and why."""

    reason: str


@dataclass(frozen=True)
class Remember:
    """A rule's answer that it has taken the batch into its memory and needs more before a step, and why."""

    reason: str


Update = Tensor | NewHead | Skip | Remember | None


class Rule(ABC):
    """A method at work on one stream. What it remembers of the stream lives here."""

    @property
    def repeats(self) -> bool:
        """Whether every update does the same to tensors and remembers nothing, so that it can be replayed."""
        return False

    @abstractmethod
    def update(self, batch: Batch) -> Update:
        """A loss to descend, a new head, ``None`` for no change of parameters, :class:`Skip` or :class:`Remember`."""

    def state_dict(self) -> dict[str, object]:
        """What the rule remembers, as tensors and plain values; by default nothing."""
        return {}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless ``state`` is one that :meth:`state_dict` could have given; by default, nothing.

        Called before anything is loaded. A rule that overrides ``state_dict`` and not this is not asked.
        """
        require_mapping(path, state, ())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most rules forget
        """Go on from what :meth:`state_dict` gave; by default from nothing."""


class RandomRule(Rule):
    """A rule that draws: its generator, on the CPU, is all that it remembers. Abstract."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def state_dict(self) -> dict[str, Any]:
        """Where the drawing stands."""
        return {"generator": self.generator.get_state()}

    def validate_state(self, state: object, path: str) -> None:
        """Raise a StateError unless a generator of torch takes the state."""
        value = require_mapping(path, state, ("generator",))["generator"]
        own = self.generator.get_state()
        require_tensor(f"{path}/generator", value, own.shape, own.dtype)
        try:
            torch.Generator().set_state(value.cpu())
        except RuntimeError as error:
            raise invalid(f"{path}/generator", "the state of a random generator", value) from error

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on drawing from there."""
        self.generator.set_state(state["generator"])


@dataclass(frozen=True)
class MethodContext:
    """What a stream begins with.

    Attributes:
        model: the adapter's own copy; for looking at, not for changing.
        head: its head, where the method needs one.
        source: the source's statistics, where there are any.
    """

    model: nn.Module
    head: nn.Linear | None
    source: SourceStatistics | None

    def require_source(self) -> SourceStatistics:
        """The statistics of a method that cannot do without (the adapter has seen to it)."""
        if self.source is None:
            raise StatisticsError("This method needs source statistics: regtta.collect(model, loader).")
        return self.source

    def require_head(self) -> nn.Linear:
        """The head of a method that cannot do without (the adapter has seen to it)."""
        if self.head is None:
            raise HeadError("This method needs the model's head. Pass head=<name>.")
        return self.head

    def extra(self, method: str, key: str) -> Tensor:
        """What ``collect(..., methods=[...])`` stored for a method, or the error that says how to get it."""
        stored = {} if self.source is None else self.source.extras
        if f"{method}/{key}" not in stored:
            raise StatisticsError(
                f"{method} needs more of the source than its moments, and the statistics do not hold it. Collect again "
                f"with it: regtta.collect(model, loader, methods=[regtta.method({method!r})])."
            )
        return stored[f"{method}/{key}"]

    @property
    def dtype(self) -> torch.dtype:
        """Precision for a rule's own arithmetic: the head's, but float32 at the least."""
        return torch.promote_types(self.require_head().weight.dtype, torch.float32)

    @property
    def device(self) -> torch.device:
        """Where the head lies."""
        return self.require_head().weight.device


@dataclass(frozen=True)
class Schedule:
    """How the adapter is to carry a method out: what moves, by which optimizer, how often.

    An ``elementwise`` optimizer treats every number alike, whichever parameter it belongs to. Without an optimizer the
    rule may answer with a :class:`NewHead`.
    """

    trainable: Trainable | None = None
    batch_norm: BatchNormMode = "source"
    prior: int = 1
    steps: int = 1
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None
    elementwise: bool = False

    @property
    def may_replace_head(self) -> bool:
        """Whether a step can put another head in place of the model's."""
        return self.optimizer is None


class Method(ABC):
    """A way of adapting. Abstract; concrete methods are frozen dataclasses.

    Class attributes:
        name: what users type.
        paper: where it comes from.
        needs_source: whether it works only with source statistics.
        needs_head: whether it looks at features or at the head.
        takes_targets: whether it learns from labels.
        gathers: what it needs of the source beyond the moments, in words.
        adapts: whether it can ever change the model; where not, batches are predicted and nothing else is done.
        revision: increase when the method's numbers change: runs of experiments that an older one made are then made
            again.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    needs_source: ClassVar[bool] = False
    needs_head: ClassVar[bool] = False
    takes_targets: ClassVar[bool] = False
    gathers: ClassVar[str] = ""
    adapts: ClassVar[bool] = True
    revision: ClassVar[int] = 0

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """What the adapter moves, and how."""

    @property
    def learns_from_one(self) -> bool:
        """Whether a batch of one sample teaches it anything: only where it remembers others."""
        return False

    @abstractmethod
    def start(self, context: MethodContext) -> Rule:
        """The rule for one new stream."""

    def gatherers(self) -> Mapping[str, Gatherer]:
        """What to gather from the source beyond its moments, by method; by default nothing."""
        return {}


@dataclass(frozen=True, kw_only=True)
class GradientMethod(Method):
    """A method that descends a loss. Abstract; every such method has these options beside its own.

    Args:
        lr: learning rate.
        optimizer: ``"adam"``, ``"adamw"``, ``"sgd"``, ``"rmsprop"``, or any callable
            ``(parameters, lr=...) -> torch.optim.Optimizer``, such as
            ``functools.partial(torch.optim.SGD, momentum=0.9)``.
        batch_norm: ``"batch"`` normalises by the batch and updates running statistics with each layer's momentum;
            ``"debiased"`` does so with nothing of the source left in them; ``"blended"`` normalises by source and
            target weighted by their counts, for small batches; ``"source"`` leaves BatchNorm as trained.
        prior: how many samples the source's statistics count as where they are blended.
        trainable: ``"affine"`` moves scale and shift of normalisation layers, ``"extractor"`` all but the head,
            ``"all"`` everything.
        steps: gradient steps a batch.
    """

    lr: float = 1e-3
    optimizer: OptimizerName | OptimizerFactory = "adam"
    batch_norm: BatchNormMode = "batch"
    prior: int = 32
    trainable: Trainable = "affine"
    steps: int = 1

    def __post_init__(self) -> None:
        """Validate fields."""
        check_positive("lr", self.lr)
        check_count("steps", self.steps)
        check_count("prior", self.prior)
        check_choice("batch_norm", self.batch_norm, BATCH_NORM_MODES)
        check_choice("trainable", self.trainable, TRAINABLE)
        if not callable(self.optimizer):
            check_choice("optimizer", self.optimizer, OPTIMIZERS.keys())

    @property
    def schedule(self) -> Schedule:
        """The fields every such method has."""
        factory = self.optimizer if callable(self.optimizer) else OPTIMIZERS[self.optimizer]
        return Schedule(
            trainable=self.trainable,
            batch_norm=self.batch_norm,
            prior=self.prior,
            steps=self.steps,
            optimizer=functools.partial(factory, lr=self.lr),
            elementwise=not callable(self.optimizer),
        )
