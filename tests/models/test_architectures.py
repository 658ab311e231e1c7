"""Every model of the catalogue goes through the whole use of the library: collect, adapt, predict, export, resume."""

import onnxruntime
import pytest
import torch

import regtta
from helpers import small_models
from helpers.architectures import CATALOGUE, make_adapter, run_pipeline
from regtta.models import BatchReader, Head, ModelInputs
from regtta.persistence import read_provenance, save_model

EXPORTED = [(entry, suffix) for entry in CATALOGUE for suffix in entry.exports]


def test_the_catalogue_is_large_and_its_names_are_unique():
    names = [entry.name for entry in CATALOGUE]
    assert len(set(names)) == len(names) >= 40
    assert len({entry for entry, _ in EXPORTED}) >= 8


@pytest.mark.parametrize("entry", CATALOGUE, ids=str)
def test_every_architecture_is_adapted_exported_and_resumed(entry, tmp_path):
    outcome = run_pipeline(entry, tmp_path)
    small_models.assert_unchanged(outcome.snapshot, outcome.model)

    assert outcome.source.head == outcome.adapter.head == entry.head
    assert outcome.features.shape[-1] == len(outcome.source.mean) == entry.width
    assert outcome.features.isfinite().all()

    assert [step.adapted for step in outcome.steps] == [True] * 3, [step.reason for step in outcome.steps]
    assert all(step.predictions.isfinite().all() for step in outcome.steps)
    assert outcome.after.isfinite().all()
    assert not torch.equal(outcome.after, outcome.before)
    assert outcome.moved
    in_head = {f"{name}." for name in Head(outcome.model, entry.head).modules}
    assert not [name for name in outcome.moved if name.startswith(tuple(in_head))]

    assert torch.equal(outcome.reloaded, outcome.after)
    assert torch.equal(outcome.resumed, outcome.after)
    assert torch.equal(*outcome.continued)


@pytest.mark.parametrize(("entry", "suffix"), EXPORTED, ids=str)
def test_programs_and_onnx_files_give_the_predictions_of_the_adapter(entry, suffix, tmp_path):
    adapter, path = make_adapter(entry, entry.make()), tmp_path / f"adapted{suffix}"
    example, batch = entry.draw(5, 21, 0.0), entry.draw(3, 24, 1.0)
    adapter.adapt(entry.draw(12, 11, 1.0))
    options = {name: value for name, value in entry.interface.items() if name != "features"}
    save_model(path, adapter.export(), adapter.provenance(), example, **options)
    assert read_provenance(path).learned == 1

    inputs = BatchReader(adapter.model, entry.inputs)(batch)
    inputs = inputs if isinstance(inputs, ModelInputs) else ModelInputs((inputs,))
    if suffix == ".pt2":
        found = torch.export.load(path).module()(*inputs.args, **inputs.kwargs)
    else:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        if len(names) > 1:
            assert set(inputs.kwargs) <= set(names)
            named = dict(zip(names, inputs.tensors, strict=True)) | inputs.kwargs
        else:
            named = {"input": inputs.tensors[0]}
        found = torch.as_tensor(session.run(["output"], {name: value.numpy() for name, value in named.items()})[0])
    torch.testing.assert_close(found, adapter.predict(batch), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("entry", [e for e in CATALOGUE if e.name in ("Bert", "Llama", "LSTM, every step")], ids=str)
def test_a_reset_adapter_is_the_source_model_again(entry):
    adapter = make_adapter(entry, entry.make())
    batch = entry.draw(12, 11, 1.0)
    before = adapter.predict(batch)
    adapter.adapt(batch)
    adapter.reset()
    assert torch.equal(adapter.predict(batch), before)
    assert isinstance(adapter, regtta.Adapter)
