"""Guards against streams whose labels move: aligning features would take the labels' own movement away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from regtta.guards.base import Arrival, Guard, Post, Watch
from regtta.options import check_count, check_not_negative, check_positive, check_share
from regtta.recent import RecentMoments
from regtta.shift_tests import reweighting_needed, steadiness
from regtta.whitening import Whitening


@dataclass(frozen=True)
class BeyondReweighting(Guard):
    """Learns only from a shift that no other mix of the source's own samples explains.

    A label shift is a reweighting of the source. One of χ² divergence c moves the whitened mean by √c at most, so
    what moves it further is not (only) a label shift. See :func:`regtta.shift_tests.reweighting_needed`.

    Args:
        limit: the divergence that a change of the mix may have. 9 is that of a stream which holds one in ten of the
            source's labels and nothing else.
        memory: samples to look back on.
    """

    limit: float = 9.0
    memory: int = 128

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_not_negative("limit", self.limit)
        check_positive("memory", self.memory)

    def start(self, post: Post) -> Watch:
        """A watch that has seen nothing yet."""
        return _MixWatch(self, Whitening.of(*post.require("BeyondReweighting")))


class _MixWatch(Watch):
    def __init__(self, guard: BeyondReweighting, whitening: Whitening) -> None:
        self.guard = guard
        self.whitening = whitening
        self.recent = RecentMoments(guard.memory)

    def admits(self, arrival: Arrival) -> str | None:
        """Look at the batch as the source model sees it."""
        self.recent.add(self.whitening(arrival.source.features))
        explained = self.recent.count == 0 or reweighting_needed(self.recent) <= self.guard.limit
        return "another mix of the source's own samples explains the shift" if explained else None

    def state_dict(self) -> dict[str, Any]:
        return self.recent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.recent.load_state_dict(state)


@dataclass(frozen=True)
class SteadyStream(Guard):
    """Learns only while samples could have come in any order.

    In a stream sorted by label, or one that comes in bursts, each batch is one-sided, and aligning it with the whole
    source is wrong. There the source model's outputs differ more between blocks of the stream than within them.

    Args:
        memory: samples to look back on, or four batches where that is more.
        block: samples a block.
        level: probability of a false alarm a batch.
    """

    memory: int = 256
    block: int = 32
    level: float = 1e-3

    needs_source: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_count("memory", self.memory)
        check_count("block", self.block)
        check_share("level", self.level)

    def start(self, post: Post) -> Watch:
        """A watch that has seen nothing yet."""
        _, head = post.require("SteadyStream")
        return _SteadyWatch(self, head.weight.detach().clone())


class _SteadyWatch(Watch):
    def __init__(self, guard: SteadyStream, weight: Tensor) -> None:
        self.guard = guard
        self.weight = weight  # (O, D) of the source model's head
        self.seen = weight.new_empty(0, len(weight))

    def admits(self, arrival: Arrival) -> str | None:
        """Remember the outputs, and compare blocks of them."""
        outputs = arrival.source.features.detach() @ self.weight.T
        outputs = outputs[outputs.isfinite().all(dim=1)]
        longest = max(self.guard.memory, 4 * len(outputs))
        self.seen = torch.cat([self.seen, outputs])[-longest:]
        least = min(self.guard.memory, 4 * self.guard.block)
        if len(self.seen) < least:
            return f"fewer than {least} samples to tell a steady stream by"
        if steadiness(self.seen, self.guard.block, self.guard.level) > 1:
            return "the stream is not steady: its outputs move from block to block"
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"].to(self.weight).clone()
