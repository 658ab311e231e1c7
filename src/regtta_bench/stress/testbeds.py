"""Shared context of runs on one source model: the model, its statistics, and clean and shifted samples."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor, nn

from regtta.methods import Method
from regtta.models import fingerprint
from regtta.statistics import SourceStatistics, collect
from regtta_bench.data import Domain
from regtta_bench.demo.demo_data import DEGRADATIONS, make_generator, split_digits, uci_digits
from regtta_bench.demo.demo_model import digit_regressor, train_digit_regressor
from regtta_bench.stress.streams import DomainPool
from regtta_bench.stress.stress_settings import DigitsSource
from regtta_bench.sweep.interfaces import ProgressCallback
from regtta_bench.sweep.runner import Runner
from regtta_bench.sweep.source_models import SourceModelCache, SourceSpec
from regtta_bench.training import HEADS, eval_transform

_BATCH = 256  # batch size of forward passes without learning
_DIGITS_HEAD = "head"


@dataclass(frozen=True, eq=False)
class StressTestbed:
    """Context that all runs on one source model share.

    Attributes:
        model: the trained model in eval mode, on its device.
        head: name of its head.
        statistics: returns the source statistics, with what the given method needs beyond the moments.
        pool: the clean and shifted domains.
        view: transform from a domain's inputs to the model's inputs.
        fingerprint: fingerprint of the weights.
    """

    model: nn.Module
    head: str
    statistics: Callable[[Method], SourceStatistics]
    pool: DomainPool
    view: Callable[[Tensor], Tensor]
    fingerprint: str

    @cached_property
    def source_outputs(self) -> Callable[[Domain], Tensor]:
        """Cached function that returns the source model's predictions ``(N, O)`` on a domain."""
        return cache(self._source_outputs)

    @torch.no_grad()
    def _source_outputs(self, domain: Domain) -> Tensor:
        rows = torch.split(torch.arange(len(domain)), _BATCH)
        return torch.cat([self.model(self.view(domain.inputs[part])) for part in rows])


def make_digits_testbed(
    spec: DigitsSource, models: SourceModelCache, device: str, progress: ProgressCallback
) -> StressTestbed:
    """Return the context of the demo's digits; clean and degraded domains are paired row by row."""
    parts = split_digits(uci_digits(), spec.seed, source=spec.source_digits, target=spec.target_digits)
    model = digit_regressor(spec.seed)
    models.load_or_train(spec, {"model": model}, lambda: _train_digits(spec, model, parts.source, progress))
    model.eval().to(device)
    batches = torch.split(parts.source.inputs.to(device), _BATCH)
    collected = cache(lambda methods: collect(model, batches, head=_DIGITS_HEAD, methods=methods))
    clean, seed = parts.target, spec.seed
    shifted = {
        name: Domain(degradation.apply(clean.inputs, make_generator(seed, name)), clean.targets).to(device)
        for name, degradation in DEGRADATIONS.items()
    }
    return StressTestbed(
        model=model,
        head=_DIGITS_HEAD,
        statistics=lambda method: collected((method,) if method.statistics_collectors() else ()),
        pool=DomainPool(clean.to(device), shifted, paired=True),
        view=lambda inputs: inputs,
        fingerprint=fingerprint(model),
    )


def _train_digits(spec: DigitsSource, model: nn.Module, digits: Domain, progress: ProgressCallback) -> None:
    done, total = 0, spec.training.epochs

    def on_epoch() -> None:
        nonlocal done
        done += 1
        progress(spec.name, done, total)

    model.load_state_dict(train_digit_regressor(digits, spec.seed, spec.training, on_epoch=on_epoch).state_dict())


def make_paper_testbed(spec: SourceSpec, parts: tuple[str, ...], runner: Runner) -> StressTestbed:
    """Return the context of a paper setting: held-out source samples as clean, its targets as shifted domains."""
    prepared, data, device = runner.load_source(spec), runner.data(spec), runner.config.device
    shifted = {part: data.target(part).to(device) for part in parts}
    return StressTestbed(
        model=prepared.model,
        head=HEADS[spec.model],
        statistics=prepared.statistics,
        pool=DomainPool(data.validation.to(device), shifted),
        view=lambda inputs: eval_transform(inputs, spec.recipe),
        fingerprint=prepared.fingerprint,
    )
