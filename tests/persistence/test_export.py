import contextlib
import copy
import datetime
import json
import logging
import sys
import zipfile
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import regtta
from helpers import small_models
from helpers.adapters import make_adapted_adapter
from regtta.errors import (
    ExistingFileError,
    FileError,
    InvalidFileError,
    MissingExtraError,
    MissingFileError,
    ModelError,
    ModelMismatchError,
    OptionError,
    RegttaError,
)
from regtta.persistence import export, model_tracing
from regtta.persistence.export import Provenance, read_provenance, save_model

MODELS = {
    "mlp": (small_models.mlp, small_models.table),
    "cnn": (small_models.cnn, small_models.images),
    "vit": (small_models.vit, small_models.images),
}
EXPORTS = [f"{name}{suffix}" for name in ("mlp", "cnn", "vit", "pair") for suffix in export.SUFFIXES]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Export every model in every format, with an example of seven rows; return the folder and the adapters."""
    folder, adapters = tmp_path_factory.mktemp("exported"), {}
    for name, (make, rows) in (MODELS | {"pair": (lambda: small_models.mlp(outputs=2), small_models.table)}).items():
        adapter = adapters[name] = make_adapted_adapter(make, rows)
        for suffix in export.SUFFIXES:
            example = None if suffix == ".safetensors" else rows(7, seed=5)
            save_model(folder / f"{name}{suffix}", adapter.export(), adapter.provenance(), example)
    return folder, adapters


def rows_of(name):
    return MODELS.get(name, MODELS["mlp"])[1]


def run_exported(path, x):
    """Return the outputs of the exported file in its own runtime."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return session.run(None, {"input": x.numpy()})[0]
    program = torch.export.load(path)
    return program.module()(x).detach().numpy()


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "vit", "pair"])
def test_files_reproduce_the_outputs_for_any_number_of_rows(exported, name, suffix):
    folder, adapters = exported
    for count in (1, 2, 7, 33):
        x = rows_of(name)(count, shift=0.5, seed=8)
        expected = adapters[name].predict(x).numpy()
        found = run_exported(folder / f"{name}{suffix}", x)
        assert found.shape == expected.shape == (count, 2 if name == "pair" else 1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_output_of_a_row_does_not_depend_on_the_batch(exported, name, suffix):
    """Batch statistics or dropout would make rows depend on each other."""
    path, x = exported[0] / f"{name}{suffix}", rows_of(name)(9, seed=4)
    whole = run_exported(path, x)
    assert np.abs(whole - run_exported(path, x)).max() == 0
    np.testing.assert_allclose(run_exported(path, x[:3]), whole[:3], rtol=0, atol=1e-6)


def test_the_outputs_differ_from_those_before_adaptation(exported):
    x = small_models.table(5, shift=0.5)
    assert np.abs(run_exported(exported[0] / "mlp.onnx", x) - small_models.mlp()(x).detach().numpy()).max() > 0.05


@pytest.mark.parametrize("name", ["mlp", "cnn", "vit"])
def test_the_state_dict_loads_into_a_new_model(exported, name):
    folder, adapters = exported
    model = MODELS[name][0](seed=9)
    model.load_state_dict(load_file(folder / f"{name}.safetensors"), strict=True)
    assert regtta.fingerprint(model) == read_provenance(folder / f"{name}.safetensors").adapted
    x = rows_of(name)(6)
    with torch.no_grad():  # attention uses another implementation with gradients
        assert torch.equal(model.eval()(x), adapters[name].predict(x))


@pytest.mark.parametrize("file", EXPORTS)
def test_a_file_contains_its_provenance(exported, file):
    folder, adapters = exported
    found, name = read_provenance(folder / file), file.partition(".")[0]
    unadapted = small_models.mlp(outputs=2) if name == "pair" else MODELS[name][0]()
    assert found.source == regtta.fingerprint(unadapted)
    assert found.adapted == regtta.fingerprint(adapters[name].export()) != found.source
    assert (found.method["type"], found.method["k"], found.method["lr"]) == ("SSA", 4, 0.05)
    assert (found.batches, found.learned, found.samples_behind_statistics) == (4, 3, 200)
    assert found.head == {"cnn": "9", "vit": "head"}.get(name, "6")
    assert (found.regtta, found.torch) == (regtta.__version__, torch.__version__)
    begun, ended = (datetime.datetime.fromisoformat(date) for date in (found.begun, found.exported))
    assert begun.utcoffset() == ended.utcoffset() == datetime.timedelta(0)
    now = datetime.datetime.now(datetime.UTC)
    assert now - datetime.timedelta(minutes=10) < begun <= ended <= now


def test_the_provenance_is_in_the_standard_metadata_of_each_format(exported):
    folder, found = exported[0], []
    with safe_open(folder / "mlp.safetensors", framework="pt") as file:
        found.append(file.metadata()["regtta.provenance"])
    extra = {"regtta.provenance": ""}
    torch.export.load(folder / "mlp.pt2", extra_files=extra)
    found.append(extra["regtta.provenance"])
    model = onnx.load(folder / "mlp.onnx")
    onnx.checker.check_model(model, full_check=True)
    found.append({entry.key: entry.value for entry in model.metadata_props}["regtta.provenance"])
    for suffix, text in zip(export.SUFFIXES, found, strict=True):
        assert json.loads(text) == read_provenance(folder / f"mlp{suffix}").to_dict()


def test_onnx_is_a_single_file_with_a_dynamic_batch_size(exported):
    model = onnx.load(exported[0] / "vit.onnx", load_external_data=False)
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    ends = [*model.graph.input, *model.graph.output]
    assert [end.name for end in ends] == ["input", "output"]
    assert {end.type.tensor_type.shape.dim[0].dim_param for end in ends} == {"batch"}
    assert not [path for path in exported[0].iterdir() if path.name not in EXPORTS]


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_files_contain_neither_example_values_nor_local_paths(tmp_path, suffix):
    adapter, secret = make_adapted_adapter(small_models.vit, small_models.images), torch.full((4, 3, 16, 16), 1234.5678)
    path = tmp_path / f"m{suffix}"
    save_model(path, adapter.export(), adapter.provenance(), secret)
    if suffix == ".pt2":
        with zipfile.ZipFile(path) as archive:
            content = b"".join(archive.read(name) for name in archive.namelist())
    else:
        content = path.read_bytes()
    assert b"TinyViT" in content  # class names may be included
    for word in (
        secret[0, 0, 0, :2].numpy().tobytes(),
        b"site-packages",
        small_models.__file__.encode(),
        b"self.patches(images)",
    ):
        assert word not in content


# --- models ----------------------------------------------------------------------------------------


class Headed(nn.Module):
    """Model that applies ``change`` before a linear head."""

    def __init__(self, change=lambda x: x):
        super().__init__()
        self.norm, self.head, self.change = nn.BatchNorm1d(5), nn.Linear(5, 1), change

    def forward(self, x):
        return self.head(self.norm(self.change(x)))


def moved(model, example=None):
    """Return an adapter of ``model`` that has adapted BatchNorm to one batch."""
    adapter = regtta.Adapter(model, regtta.BNAdapt())
    adapter.adapt(small_models.table(16, shift=1.0) if example is None else example)
    return adapter


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize(
    "change",
    [lambda x: x if x.sum() > 0 else -x, lambda x: x.view(2, 5), lambda x: x if len(x) > 1 else -x],
    ids=["values", "fixed", "rows"],
)
def test_a_model_that_cannot_be_traced_raises_one_clear_error(tmp_path, capfd, change, suffix):
    model = Headed()
    adapter = moved(model)
    plain = adapter.export()
    plain.change = change
    path = tmp_path / f"m{suffix}"
    with pytest.raises(ModelError, match=r"torch.export cannot trace the model .*torch.where.*flatten\(1\)"):
        save_model(path, plain, adapter.provenance(), small_models.table(2))
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    save_model(tmp_path / "m.safetensors", plain, adapter.provenance())


def test_an_operation_unsupported_by_onnx(tmp_path):
    adapter = moved(Headed(torch.special.i0e))
    with pytest.raises(ModelError, match=r"cannot be written as ONNX .*bessel_i0e.*Write .pt2"):
        save_model(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(2))
    assert not list(tmp_path.iterdir())
    save_model(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), small_models.table(2))
    x = small_models.table(3)
    np.testing.assert_allclose(run_exported(tmp_path / "m.pt2", x), adapter.predict(x).numpy(), rtol=0, atol=1e-6)


class Squeezed(Headed):
    def forward(self, x):
        return super().forward(x).squeeze(1)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_outputs_without_a_second_dimension(tmp_path, suffix):
    adapter = moved(Squeezed())
    save_model(tmp_path / f"m{suffix}", adapter.export(), adapter.provenance(), small_models.table(3))
    for count in (1, 5):
        x = small_models.table(count, seed=6)
        found = run_exported(tmp_path / f"m{suffix}", x)
        assert found.shape == (count,)
        np.testing.assert_allclose(found, adapter.predict(x).numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_double_precision_is_preserved(tmp_path, suffix):
    adapter = moved(small_models.mlp().double(), small_models.table(16).double())
    save_model(tmp_path / f"m{suffix}", adapter.export(), adapter.provenance(), small_models.table(3).double())
    x = small_models.table(5, seed=6).double()
    np.testing.assert_allclose(run_exported(tmp_path / f"m{suffix}", x), adapter.predict(x).numpy(), rtol=0, atol=1e-12)


def test_a_file_that_onnxruntime_cannot_run_is_deleted(tmp_path):
    adapter = moved(small_models.mlp().bfloat16(), small_models.table(16).bfloat16())
    with pytest.raises(ModelError, match=r"onnxruntime cannot run the model .*model.float\(\)"):
        save_model(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(3).bfloat16())
    assert not list(tmp_path.iterdir())


def test_tied_and_frozen_weights(tmp_path):
    model = small_models.vit().requires_grad_(False)
    model.block.linear2.weight = nn.Parameter(model.block.linear1.weight.T.contiguous())
    model.block.norm2 = model.block.norm1
    adapter = regtta.Adapter(model, regtta.NoAdaptation(), head="head")
    x = small_models.images(4)
    for suffix in export.SUFFIXES:
        save_model(tmp_path / f"m{suffix}", adapter.export(), adapter.provenance(), x)
    for suffix in (".pt2", ".onnx"):
        np.testing.assert_allclose(
            run_exported(tmp_path / f"m{suffix}", x), adapter.predict(x).numpy(), rtol=0, atol=1e-5
        )
    fresh = copy.deepcopy(model)
    fresh.load_state_dict(load_file(tmp_path / "m.safetensors"))
    assert read_provenance(tmp_path / "m.safetensors").adapted == regtta.fingerprint(fresh)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_export_works_without_gradients(tmp_path, mode):
    x, adapter = small_models.table(4), moved(small_models.mlp())
    with mode():
        adapter.adapt(small_models.table(16, seed=6))
        save_model(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), x)
    np.testing.assert_allclose(run_exported(tmp_path / "m.pt2", x), adapter.predict(x).numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "example", [small_models.table(1), small_models.table(0), (small_models.table(3), 0), {"x": small_models.table(3)}]
)
def test_an_example_may_be_any_batch(tmp_path, example):
    adapter = moved(small_models.mlp())
    save_model(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), example)
    x = small_models.table(4)
    np.testing.assert_allclose(run_exported(tmp_path / "m.pt2", x), adapter.predict(x).numpy(), rtol=0, atol=1e-6)


def test_missing_values_in_the_example_are_ignored(tmp_path):
    adapter, x = moved(small_models.mlp()), small_models.table(4)
    x[1, 2] = float("nan")
    save_model(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), x)
    x[:] = float("inf")
    save_model(tmp_path / "n.onnx", adapter.export(), adapter.provenance(), x)


def test_a_model_in_training_mode_is_exported_in_eval_mode_and_left_in_training_mode(tmp_path):
    adapter = moved(small_models.cnn(), small_models.images(16))
    model = adapter.export().train()
    before = small_models.model_snapshot(model)
    for suffix in export.SUFFIXES:
        save_model(tmp_path / f"m{suffix}", model, adapter.provenance(), small_models.images(4))
    small_models.assert_unchanged(before, model)
    x = small_models.images(3)
    for suffix in (".pt2", ".onnx"):
        np.testing.assert_allclose(
            run_exported(tmp_path / f"m{suffix}", x), adapter.predict(x).numpy(), rtol=0, atol=1e-5
        )


# --- invalid arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", export.SUFFIXES)
def test_an_existing_file_is_not_replaced_by_default(tmp_path, suffix):
    adapter, path = moved(small_models.mlp()), tmp_path / f"m{suffix}"
    path.write_text("mine")
    with pytest.raises(ExistingFileError, match="overwrite=True"):
        save_model(path, adapter.export(), adapter.provenance(), small_models.table(2))
    assert path.read_text() == "mine"
    save_model(path, adapter.export(), adapter.provenance(), small_models.table(2), overwrite=True)
    assert read_provenance(path).learned == 1
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    with pytest.raises(MissingFileError, match="no folder"):
        save_model(tmp_path / "none" / path.name, adapter.export(), adapter.provenance(), small_models.table(2))


@pytest.mark.parametrize("suffix", export.SUFFIXES)
def test_the_provenance_of_another_time_is_rejected(tmp_path, suffix):
    adapter = moved(small_models.mlp())
    provenance = adapter.provenance()
    adapter.adapt(small_models.table(16, seed=7))
    with pytest.raises(ModelMismatchError, match="no batch between"):
        save_model(tmp_path / f"m{suffix}", adapter.export(), provenance, small_models.table(2))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, exported, package):
    monkeypatch.setitem(sys.modules, package, None)
    adapter = moved(small_models.mlp())
    with pytest.raises(MissingExtraError, match=rf'{package}, which is not installed: pip install "regtta\[export\]"'):
        save_model(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(2))
    save_model(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), small_models.table(2))
    assert read_provenance(exported[0] / "mlp.onnx").learned == 3


def test_a_file_with_different_outputs_is_deleted(tmp_path, monkeypatch):
    real = model_tracing.run_model
    monkeypatch.setattr(model_tracing, "run_model", lambda model, x: real(model, x) + 0.01)
    adapter = moved(small_models.mlp())
    for suffix, who in ((".pt2", "the program"), (".onnx", "onnxruntime")):
        with pytest.raises(ModelError, match=rf"outputs of {who} differ from those of the model by up to 0.01"):
            save_model(tmp_path / f"m{suffix}", adapter.export(), adapter.provenance(), small_models.table(2))
    monkeypatch.setattr(model_tracing, "run_model", lambda model, x: real(model, x).squeeze(1))
    with pytest.raises(ModelError, match=r"outputs of shape \(2,\) for 2 rows, as the model does, found \(2, 1\)"):
        save_model(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), small_models.table(2))
    assert not list(tmp_path.iterdir())


def test_a_model_too_large_for_onnx_is_rejected_first(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_MAX_ONNX_BYTES", 100)
    adapter = moved(small_models.mlp())
    with pytest.raises(ModelError, match=r"at most 2. Write .pt2"):
        save_model(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(2))


def test_invalid_suffixes_and_examples(tmp_path):
    adapter = moved(small_models.mlp())
    with pytest.raises(OptionError, match="ends in .safetensors or .pt2 or .onnx"):
        save_model(tmp_path / "m.pt", adapter.export(), adapter.provenance(), small_models.table(2))
    with pytest.raises(OptionError, match="pass example="):
        save_model(tmp_path / "m.pt2", adapter.export(), adapter.provenance())
    with pytest.raises(OptionError, match="ends in"):
        read_provenance(tmp_path / "m.pth")


def test_a_state_dict_with_other_values_is_rejected(tmp_path):
    class Stateful(nn.Linear):
        def get_extra_state(self):
            return {"secret": 1}

    model = Stateful(5, 1)
    provenance = replace(make_adapted_adapter().provenance(), adapted=regtta.fingerprint(model))
    with pytest.raises(ModelError, match="tensors only, found .* at '_extra_state'"):
        save_model(tmp_path / "m.safetensors", model, provenance)


def test_logging_and_output_streams_are_restored_after_an_export(tmp_path):
    adapter, disabled = moved(small_models.mlp()), logging.root.manager.disable
    streams = sys.stdout, sys.stderr
    save_model(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(2))
    assert logging.root.manager.disable == disabled
    assert (sys.stdout, sys.stderr) == streams


# --- reading ---------------------------------------------------------------------------------------


def archive(path, **entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(f"archive/extra/{name}", content)


def test_files_without_provenance(tmp_path):
    save_file({"w": torch.zeros(2)}, tmp_path / "m.safetensors")
    archive(tmp_path / "m.pt2", other="text")
    model = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
    onnx.save(model, tmp_path / "m.onnx")
    for suffix in export.SUFFIXES:
        with pytest.raises(InvalidFileError, match="regtta did not export it"):
            read_provenance(tmp_path / f"m{suffix}")
        with pytest.raises(MissingFileError, match="no file"):
            read_provenance(tmp_path / f"none{suffix}")


@pytest.mark.parametrize("file", ["mlp.safetensors", "mlp.pt2", "mlp.onnx"])
def test_truncated_and_mislabelled_files(exported, tmp_path, file):
    content = (exported[0] / file).read_bytes()
    path = tmp_path / file
    for cut in (0, 1, 7, 9, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(FileError):
            read_provenance(path)
    for junk in (b"hello world, this is text", b"\xff" * 50, b"\x80\x04pickle", b"PK\x03\x04" + b"x" * 50):
        path.write_bytes(junk)
        with pytest.raises(FileError):
            read_provenance(path)


def write_with_provenance(path, text):
    """Write a file of the format of ``path`` with ``text`` as its provenance."""
    if path.suffix == ".safetensors":
        save_file({"w": torch.zeros(2)}, path, metadata={"regtta.provenance": text})
    elif path.suffix == ".pt2":
        archive(path, **{"regtta.provenance": text})
    else:
        model = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
        onnx.helper.set_model_props(model, {"first": "x", "regtta.provenance": text, "last": "y" * 300})
        onnx.save(model, path)


@pytest.mark.parametrize("suffix", export.SUFFIXES)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ('{"batches": NaN}', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "found list"),
        ('{"source": ""}', "lacks .*'adapted'"),
    ],
)
def test_an_invalid_provenance(tmp_path, suffix, text, words):
    path = tmp_path / f"m{suffix}"
    write_with_provenance(path, text)
    with pytest.raises(InvalidFileError, match=words) as caught:
        read_provenance(path)
    assert path.name in str(caught.value)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_a_provenance_that_is_too_large_is_not_read(tmp_path, suffix):
    path = tmp_path / f"m{suffix}"
    write_with_provenance(path, "x" * 3_000_000)
    with pytest.raises(InvalidFileError, match=r"more than 1048576 bytes|too large"):
        read_provenance(path)


def test_nothing_in_an_archive_is_unpickled(exported, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("unpickled")

    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr("pickle.load", refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    monkeypatch.setattr("pickle.Unpickler", refuse)
    for suffix in export.SUFFIXES:
        assert read_provenance(exported[0] / f"mlp{suffix}").learned == 3


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 1), byte=st.integers(0, 255), suffix=st.sampled_from(export.SUFFIXES))
def test_a_flipped_byte_gives_a_provenance_or_a_regtta_error(exported, tmp_path, position, byte, suffix):
    content = bytearray((exported[0] / f"mlp{suffix}").read_bytes())
    content[int(position * (len(content) - 1))] = byte
    path = tmp_path / f"flipped{suffix}"
    path.write_bytes(content)
    with contextlib.suppress(RegttaError):
        assert isinstance(read_provenance(path), Provenance)
