"""Where streams run: a trained source model, its statistics, and the samples, clean and shifted."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor, nn

from regtta.collecting import collect
from regtta.experiments.datasets import Domain
from regtta.experiments.demo.data import split, uci_digits
from regtta.experiments.demo.degradations import DEGRADATIONS
from regtta.experiments.demo.model import digit_regressor
from regtta.experiments.demo.seeds import generator
from regtta.experiments.demo.training import train
from regtta.experiments.models import HEADS
from regtta.experiments.reproduce.roles import Told
from regtta.experiments.reproduce.workshop import Workshop
from regtta.experiments.sources import SourceModels, SourceSpec
from regtta.experiments.stress.settings import DigitsSource
from regtta.experiments.stress.streams import Pool
from regtta.experiments.training import plain_view
from regtta.methods import Method
from regtta.statistics import SourceStatistics, fingerprint

_BATCH = 256  # of passes that do not learn
_DIGITS_HEAD = "head"


@dataclass(frozen=True, eq=False)
class Ground:
    """All that runs from one source model share.

    Attributes:
        model: trained, in eval mode, on its device.
        head: name of its head.
        statistics: gives those of its features, with what a method needs beyond the moments.
        pool: the samples.
        view: from the inputs of a domain to those of the model.
        fingerprint: of the model.
    """

    model: nn.Module
    head: str
    statistics: Callable[[Method], SourceStatistics]
    pool: Pool
    view: Callable[[Tensor], Tensor]
    fingerprint: str

    @cached_property
    def source_outputs(self) -> Callable[[Domain], Tensor]:
        """Gives (N, O) what the source model says of every sample of a domain."""
        return cache(self._source_outputs)

    @torch.no_grad()
    def _source_outputs(self, domain: Domain) -> Tensor:
        rows = torch.split(torch.arange(len(domain)), _BATCH)
        return torch.cat([self.model(self.view(domain.inputs[part])) for part in rows])


def digits_ground(spec: DigitsSource, models: SourceModels, device: str, told: Told) -> Ground:
    """The demo's digits: the clean ones are those that are degraded, so that a stream has either."""
    parts = split(uci_digits(), spec.seed, source=spec.source_digits, target=spec.target_digits)
    model = digit_regressor(spec.seed)
    models.get(spec, {"model": model}, lambda: _train_digits(spec, model, parts.source, told))
    model.eval().to(device)
    batches = torch.split(parts.source.inputs.to(device), _BATCH)
    collected = cache(lambda methods: collect(model, batches, head=_DIGITS_HEAD, methods=methods))
    clean, seed = parts.target, spec.seed
    shifted = {
        name: Domain(degradation.apply(clean.inputs, generator(seed, name)), clean.targets).to(device)
        for name, degradation in DEGRADATIONS.items()
    }
    return Ground(
        model=model,
        head=_DIGITS_HEAD,
        statistics=lambda method: collected((method,) if method.gatherers() else ()),
        pool=Pool(clean.to(device), shifted, paired=True),
        view=lambda inputs: inputs,
        fingerprint=fingerprint(model),
    )


def _train_digits(spec: DigitsSource, model: nn.Module, digits: Domain, told: Told) -> None:
    done, total = 0, spec.training.epochs

    def advance() -> None:
        nonlocal done
        done += 1
        told(spec.name, done, total)

    model.load_state_dict(train(digits, spec.seed, spec.training, advance=advance).state_dict())


def paper_ground(spec: SourceSpec, parts: tuple[str, ...], workshop: Workshop) -> Ground:
    """A setting of the paper: held-out samples of its source, and its targets."""
    prepared, data, device = workshop.prepare(spec), workshop.data(spec), workshop.tools.device
    shifted = {part: data.target(part).to(device) for part in parts}
    return Ground(
        model=prepared.model,
        head=HEADS[spec.model],
        statistics=prepared.statistics,
        pool=Pool(data.validation.to(device), shifted),
        view=lambda inputs: plain_view(inputs, spec.recipe),
        fingerprint=prepared.fingerprint,
    )
