"""Testbed of a small source model, trained on two hundred digits."""

from collections.abc import Iterator

import pytest

from regtta_bench.demo.demo_model import DigitTraining
from regtta_bench.demo.demo_recipe import DemoRecipe
from regtta_bench.demo.demo_study import one_thread
from regtta_bench.label_shift.label_shift_testbeds import LabelShiftTestbed, make_demo_testbed

TOY = DemoRecipe(source_digits=200, target_digits=150, training=DigitTraining(epochs=2))


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="session")
def testbed() -> LabelShiftTestbed:
    return make_demo_testbed(0, TOY)
