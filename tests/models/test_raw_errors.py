"""Mistakes that torch or Python would report in their own words: errors of the library name the fix."""

import pytest
import torch
from torch import nn

import regtta
from helpers import small_models
from regtta.errors import BatchError, MissingFileError, ModelError, OptionError

X = small_models.table(32)
IDS = torch.arange(32) % 10


class Two(nn.Module):
    """Model of indices and a table."""

    def __init__(self):
        super().__init__()
        self.lookup, self.body, self.norm, self.head = (
            nn.Embedding(10, 4),
            nn.Linear(5, 4),
            nn.LayerNorm(8),
            nn.Linear(8, 1),
        )

    def forward(self, ids, x):
        return self.head(self.norm(torch.cat([self.lookup(ids), self.body(x)], dim=1)))


def test_a_text_that_is_no_file_as_statistics(tmp_path):
    with pytest.raises(MissingFileError) as found:
        regtta.Adapter(small_models.mlp(), "ssa", "nope.safetensors")
    assert str(found.value) == (
        "There is no file nope.safetensors. Pass a file of source statistics, written once by regtta.collect(model, "
        "loader).save(path)."
    )
    with pytest.raises(MissingFileError, match="There is no file"):
        regtta.Adapter(small_models.mlp(), "ssa", tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_inputs_of_another_dtype(dtype):
    with pytest.raises(
        BatchError, match=rf"cannot take inputs of {dtype}: .* Convert the inputs first: x\.float\(\)\."
    ):
        regtta.collect(small_models.mlp(), [X.to(dtype)])


@pytest.mark.parametrize(
    ("dtype", "fix"), [(torch.float64, "double"), (torch.float16, "half"), (torch.bfloat16, "bfloat16")]
)
def test_models_of_another_dtype(dtype, fix):
    with pytest.raises(BatchError, match=rf"parameters are of {dtype} .*x\.{fix}\(\)\."):
        regtta.collect(small_models.mlp().to(dtype), [X])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_of_several_inputs_the_floating_point_one_is_named(dtype):
    with pytest.raises(BatchError, match=rf"cannot take inputs of {dtype}: its parameters are of torch.float32"):
        regtta.collect(Two(), [(IDS, X.to(dtype))])


def test_indices_that_are_floating_point():
    with pytest.raises(BatchError, match=r"needs integers there; the inputs are of torch.float32, .*x\.long\(\)\."):
        regtta.collect(Two(), [(IDS.float(), X)])


@pytest.mark.parametrize(
    "inputs", ["ids", lambda batch: ((batch["ids"],), {}), lambda batch: ((), {"ids": batch["ids"], "y": 1})]
)
def test_arguments_of_forward_that_are_missing_or_unknown(inputs):
    with pytest.raises(BatchError, match=r"cannot be called with this batch \(.*forward\(\) .*inputs="):
        regtta.collect(Two(), [{"ids": IDS, "x": X}], inputs=inputs)


def test_a_batch_with_too_few_tensors():
    with pytest.raises(BatchError, match=r"needs \['ids', 'x'\], and the batch is a single tensor"):
        regtta.collect(Two(), [IDS])


@pytest.mark.parametrize("inputs", [[["a"]], {"a": 1}, [{}], (), True, False, [True], 1.5, [1.5], slice(1), [None]])
def test_selections_of_inputs_that_are_neither_keys_nor_callables(inputs):
    with pytest.raises(OptionError, match="Expected inputs to be a key, an index, a list of them, or a callable"):
        regtta.collect(small_models.mlp(), [{"x": X}], inputs=inputs)


@pytest.mark.parametrize("output", [[["a"]], {"a": 1}, True, False, 1.5, [0], slice(1)])
def test_selections_of_outputs_that_are_neither_keys_nor_callables(output):
    with pytest.raises(OptionError, match="Expected output to be a key, an index, or a callable"):
        regtta.collect(small_models.mlp(), [X], output=output)


@pytest.mark.parametrize(
    ("option", "function", "words"),
    [
        (
            "inputs",
            lambda batch: batch["image"],
            r"KeyError: 'image'\. It was called with a dict with the keys \['x'\]",
        ),
        ("inputs", lambda batch, more: batch, "TypeError: .*missing 1 required positional argument"),
        ("output", lambda found: found.mean_value, r"AttributeError: .*a tensor of shape \(32, 1\)"),
        ("features", lambda found: found.pooled, r"AttributeError: .*a tensor of shape \(32, 12\)"),
    ],
)
def test_callables_that_fail(option, function, words):
    with pytest.raises(OptionError, match=rf"The callable {option}= failed with {words}"):
        regtta.collect(small_models.mlp(), [{"x": X}], **{option: function})


def test_lazy_layers_before_their_first_call():
    lazy = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.Linear(8, 1))
    for use in (lambda: regtta.collect(lazy, [X]), lambda: regtta.Adapter(lazy, "bn_adapt")):
        with pytest.raises(
            ModelError, match=r"lazy layers without weights yet \(0.weight\)\. Run it on one batch first"
        ):
            use()
