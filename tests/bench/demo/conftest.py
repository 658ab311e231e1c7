"""A demo small enough for tests, and studies made of chosen numbers."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from helpers.report_fixtures import reports  # noqa: F401
from regtta_bench.demo.demo_data import Contrast, Noise
from regtta_bench.demo.demo_model import Training
from regtta_bench.demo.demo_recipe import ARMS, Recipe
from regtta_bench.demo.demo_study import Run, SourceModel, make_source, one_thread
from regtta_bench.demo.demo_table import Study
from regtta_bench.paper.protocol import PROTOCOLS, EvaluationResult

Numbers = Mapping[tuple[str, str], tuple[float | None, ...]]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """As the demo runs: threads that wait for each other are slow where cores are shared."""
    with one_thread():
        yield


@pytest.fixture(scope="session")
def toy() -> Recipe:
    return Recipe(
        source_digits=200,
        target_digits=65,
        training=Training(epochs=1),
        degradations={"noisy": Noise(0.3), "contrast": Contrast(0.15)},
    )


@pytest.fixture(scope="session")
def toy_source(toy: Recipe) -> SourceModel:
    return make_source(toy, seed=3)


@pytest.fixture
def study_of(toy: Recipe) -> Callable[..., Study]:
    """A study whose R² is 0.5 everywhere but where ``numbers`` say, by (scene, arm); None diverged."""

    def build(numbers: Numbers, seeds: tuple[int, ...] = (0, 1, 2)) -> Study:
        runs = []
        for scene in toy.scenes:
            for arm in ARMS:
                values = numbers.get((scene, arm.name), (0.5,) * len(seeds))
                for seed, r2 in zip(seeds, values, strict=True):
                    score = {"r2": r2, "rmse": 2.0, "mae": 1.0, "pearson": 0.9, "count": 65}
                    outcome = EvaluationResult(dict.fromkeys(PROTOCOLS, score), {}, 2, {}, "loss" if r2 is None else "")
                    runs.append(Run(seed, scene, arm.name, outcome))
        return Study(toy, seeds, tuple(runs))

    return build
