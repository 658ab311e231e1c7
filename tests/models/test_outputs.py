from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch.distributions import AffineTransform, Independent, Normal, Poisson, SigmoidTransform, TransformedDistribution

from regtta.errors import ModelError, OptionError
from regtta.models.outputs import check_output_selection, select_output

ONE, TWO = torch.arange(1.0, 5.0)[:, None], torch.ones(4, 1)
SERIES = torch.zeros(4, 7, 2)
Returned = namedtuple("Returned", ["prediction", "state"])


@dataclass
class Output:
    loss: object = None
    logits: object = None
    hidden: object = None


@dataclass(slots=True)
class Slotted:
    prediction: object


@pytest.mark.parametrize(
    "returned",
    [
        ONE,
        (ONE,),
        [ONE],
        {"prediction": ONE},
        {"prediction": ONE, "loss": TWO},
        {"prediction": ONE, "loss": torch.tensor(0.1), "name": "text", "none": None},
        {"logits": ONE, "hidden": SERIES, "loss": None},
        Output(logits=ONE, loss=torch.tensor(0.5)),
        Output(logits=ONE, hidden=SERIES),
        Output(logits=ONE, hidden=(SERIES, SERIES)),
        Slotted(ONE),
        Returned(ONE, None),
        (ONE, (SERIES, SERIES)),
        (ONE, torch.tensor(0.1)),
        Normal(ONE, TWO),
        Independent(Normal(ONE, TWO), 1),
        {"distribution": Normal(ONE, TWO)},
        Poisson(ONE),
    ],
    ids=lambda returned: type(returned).__name__,
)
def test_the_prediction_is_found_by_default(returned):
    assert torch.equal(select_output(returned), ONE)


def test_several_tensors_of_one_shape_are_columns_in_their_order():
    assert torch.equal(select_output((ONE, TWO)), torch.cat([ONE, TWO], dim=1))
    assert torch.equal(select_output((ONE[:, 0], TWO[:, 0])), torch.cat([ONE, TWO], dim=1))
    assert torch.equal(select_output({"a": TWO, "b": ONE}), torch.cat([TWO, ONE], dim=1))
    assert select_output(OrderedDict(a=torch.ones(4, 2), b=torch.ones(4, 2), loss=torch.ones(4, 2))).shape == (4, 4)


@pytest.mark.parametrize(
    ("returned", "selection"),
    [
        ((TWO, ONE), 1),
        ((TWO, SERIES, ONE), -1),
        ({"a": TWO, "b": ONE}, "b"),
        ({"a": TWO, "b": ONE}, 1),
        (Output(logits=TWO, hidden=ONE), "hidden"),
        (Output(logits=TWO, hidden=ONE), 2),
        (Returned(TWO, ONE), "state"),
        (Slotted(ONE), "prediction"),
        (Normal(TWO, ONE), "scale"),
        ({"a": Normal(ONE, TWO)}, "a"),
        (torch.cat([TWO, ONE], dim=1), lambda y: y[:, 1:]),
        (Normal(ONE, TWO), lambda normal: normal),
    ],
)
def test_the_prediction_is_selected_by_key_index_attribute_or_callable(returned, selection):
    assert torch.equal(select_output(returned, selection), ONE)


@pytest.mark.parametrize(
    ("returned", "selection", "message"),
    [
        ("text", None, r"return a tensor \(B, ...\) of predictions, found str"),
        (None, None, "found NoneType"),
        (torch.tensor(1.0), None, "found a number"),
        ((), None, "found tuple"),
        ((ONE, SERIES), None, r"found tuple of 0: \(4, 1\), 1: \(4, 7, 2\).*output=<key or index>"),
        ((ONE, TWO[:2]), None, "found tuple of 0"),
        ((SERIES, SERIES), None, "found tuple of 0"),
        ({"name": "text"}, None, "found dict of 'name': str"),
        ((Normal(ONE, TWO), torch.ones(4, 1)), None, r"found tuple of 0: Normal, 1: \(4, 1\)"),
        ({"a": ONE}, "b", r"no output='b' in what the model returns, dict of 'a': \(4, 1\)"),
        ((ONE, TWO), 2, "no output=2"),
        ((ONE, TWO), -3, "no output=-3"),
        (ONE, 0, "no output=0 in what the model returns, Tensor"),
        ((ONE, "text"), 1, "output=1 to select a tensor.*found str"),
        (ONE, lambda y: y.tolist(), "found list"),
        (ONE, lambda y: y.sum(), "found a number"),
        (ONE, "mean", "found builtin_function_or_method"),
    ],
)
def test_what_is_no_prediction_raises_an_error_that_describes_it(returned, selection, message):
    with pytest.raises(ModelError, match=message):
        select_output(returned, selection)


def test_a_distribution_without_a_known_mean_needs_a_callable():
    squashed = TransformedDistribution(Normal(ONE, TWO), [SigmoidTransform(), AffineTransform(1.0, 2.0)])
    with pytest.raises(ModelError, match="TransformedDistribution, whose mean is not known.*output=<callable"):
        select_output(squashed)
    assert select_output(squashed, lambda found: 2 * found.base_dist.mean.sigmoid() + 1).shape == (4, 1)


def test_selections_are_validated():
    for valid in (None, "logits", 0, -1, len):
        assert check_output_selection(valid) is valid
    for wrong in (True, False, 1.5, ["a"], torch.ones(2)):
        with pytest.raises(OptionError, match="Expected output to be a key, an index, or a callable"):
            check_output_selection(wrong)
