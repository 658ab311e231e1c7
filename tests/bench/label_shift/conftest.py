"""A source model small enough for tests: digits, two hundred to train on, once."""

from collections.abc import Iterator

import pytest

from regtta_bench.demo.demo_model import Training
from regtta_bench.demo.demo_recipe import Recipe
from regtta_bench.demo.demo_study import one_thread
from regtta_bench.label_shift.label_shift_testbeds import Bench, demo_bench

TOY = Recipe(source_digits=200, target_digits=150, training=Training(epochs=2))


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="session")
def bench() -> Bench:
    return demo_bench(0, TOY)
