"""A small demo, and studies with chosen scores."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from helpers.report_fixtures import reports  # noqa: F401
from regtta_bench.demo.demo_data import Contrast, Noise
from regtta_bench.demo.demo_model import DigitTraining
from regtta_bench.demo.demo_recipe import DEMO_METHODS, DemoRecipe
from regtta_bench.demo.demo_study import DemoRun, SourceModel, make_source, one_thread
from regtta_bench.demo.demo_table import DemoStudy
from regtta_bench.paper.protocol import PROTOCOLS, EvaluationResult

Numbers = Mapping[tuple[str, str], tuple[float | None, ...]]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Run on one thread like the demo: waiting for other threads is slow on shared cores."""
    with one_thread():
        yield


@pytest.fixture(scope="session")
def toy() -> DemoRecipe:
    return DemoRecipe(
        source_digits=200,
        target_digits=65,
        training=DigitTraining(epochs=1),
        degradations={"noisy": Noise(0.3), "contrast": Contrast(0.15)},
    )


@pytest.fixture(scope="session")
def toy_source(toy: DemoRecipe) -> SourceModel:
    return make_source(toy, seed=3)


@pytest.fixture
def study_of(toy: DemoRecipe) -> Callable[..., DemoStudy]:
    """Return a study with an R² of 0.5, except for ``numbers`` by (scene, method name); None is a diverged run."""

    def build(numbers: Numbers, seeds: tuple[int, ...] = (0, 1, 2)) -> DemoStudy:
        runs = []
        for scene in toy.scenes:
            for entry in DEMO_METHODS:
                values = numbers.get((scene, entry.name), (0.5,) * len(seeds))
                for seed, r2 in zip(seeds, values, strict=True):
                    score = {"r2": r2, "rmse": 2.0, "mae": 1.0, "pearson": 0.9, "count": 65}
                    outcome = EvaluationResult(dict.fromkeys(PROTOCOLS, score), {}, 2, {}, "loss" if r2 is None else "")
                    runs.append(DemoRun(seed, scene, entry.name, outcome))
        return DemoStudy(toy, seeds, tuple(runs))

    return build
