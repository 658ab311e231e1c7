import contextlib
import copy
import datetime
import io
import json
import logging
import sys
import zipfile
from dataclasses import dataclass, fields, replace

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
from regtta.errors import (
    ExistingFileError,
    FileError,
    ForeignFileError,
    MissingExtraError,
    MissingFileError,
    ModelError,
    ModelMismatchError,
    OptionError,
    RegttaError,
)
from regtta.persistence import export as exporting
from regtta.persistence import export_tools as tracing
from regtta.persistence.export import Provenance, read_provenance, save

MODELS = {
    "mlp": (small_models.mlp, small_models.table),
    "cnn": (small_models.cnn, small_models.images),
    "vit": (small_models.vit, small_models.images),
}
EXPORTS = [f"{name}{suffix}" for name in ("mlp", "cnn", "vit", "pair") for suffix in exporting.SUFFIXES]


def adapted(make=small_models.mlp, rows=small_models.table, method=None, batches=3):
    """An adapter that has moved: ``batches`` learned from, then one of a single row refused."""
    model = make()
    source = regtta.collect(model, rows(200).split(50))
    adapter = regtta.Adapter(model, method or regtta.SSA(k=4, lr=0.05), source)
    for x in rows(16 * batches, shift=0.5, scale=1.5, seed=3).split(16):
        adapter.adapt(x)
    adapter.adapt(rows(1))
    return adapter


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Every model in every format, with its adapter; the example has seven rows."""
    folder, adapters = tmp_path_factory.mktemp("exported"), {}
    for name, (make, rows) in (MODELS | {"pair": (lambda: small_models.mlp(outputs=2), small_models.table)}).items():
        adapter = adapters[name] = adapted(make, rows)
        for suffix in exporting.SUFFIXES:
            example = None if suffix == ".safetensors" else rows(7, seed=5)
            save(folder / f"{name}{suffix}", adapter.export(), adapter.provenance(), example)
    return folder, adapters


def rows_of(name):
    return MODELS.get(name, MODELS["mlp"])[1]


def ran(path, x):
    """What other programs get out of the file."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return session.run(None, {"input": x.numpy()})[0]
    program = torch.export.load(path)
    return program.module()(x).detach().numpy()


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "vit", "pair"])
def test_files_give_the_outputs_of_the_adapted_model_for_any_number_of_rows(exported, name, suffix):
    folder, adapters = exported
    for count in (1, 2, 7, 33):
        x = rows_of(name)(count, shift=0.5, seed=8)
        expected = adapters[name].predict(x).numpy()
        found = ran(folder / f"{name}{suffix}", x)
        assert found.shape == expected.shape == (count, 2 if name == "pair" else 1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_row_is_answered_alike_in_any_company(exported, name, suffix):
    """BatchNorm by the batch or dropout would not do that."""
    path, x = exported[0] / f"{name}{suffix}", rows_of(name)(9, seed=4)
    whole = ran(path, x)
    assert np.abs(whole - ran(path, x)).max() == 0
    np.testing.assert_allclose(ran(path, x[:3]), whole[:3], rtol=0, atol=1e-6)


def test_the_outputs_are_not_those_before_adapting(exported):
    x = small_models.table(5, shift=0.5)
    assert np.abs(ran(exported[0] / "mlp.onnx", x) - small_models.mlp()(x).detach().numpy()).max() > 0.05


@pytest.mark.parametrize("name", ["mlp", "cnn", "vit"])
def test_the_state_dict_fills_a_fresh_model(exported, name):
    folder, adapters = exported
    model = MODELS[name][0](seed=9)
    model.load_state_dict(load_file(folder / f"{name}.safetensors"), strict=True)
    assert regtta.fingerprint(model) == read_provenance(folder / f"{name}.safetensors").adapted
    x = rows_of(name)(6)
    with torch.no_grad():  # attention takes another way with gradients
        assert torch.equal(model.eval()(x), adapters[name].predict(x))


@pytest.mark.parametrize("file", EXPORTS)
def test_a_file_says_where_it_comes_from(exported, file):
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


def test_other_programs_find_it_where_each_format_keeps_such_things(exported):
    folder, found = exported[0], []
    with safe_open(folder / "mlp.safetensors", framework="pt") as file:
        found.append(file.metadata()["regtta.persistence.provenance"])
    extra = {"regtta.persistence.provenance": ""}
    torch.export.load(folder / "mlp.pt2", extra_files=extra)
    found.append(extra["regtta.persistence.provenance"])
    model = onnx.load(folder / "mlp.onnx")
    onnx.checker.check_model(model, full_check=True)
    found.append({entry.key: entry.value for entry in model.metadata_props}["regtta.persistence.provenance"])
    for suffix, text in zip(exporting.SUFFIXES, found, strict=True):
        assert json.loads(text) == read_provenance(folder / f"mlp{suffix}").to_dict()


def test_onnx_is_one_file_and_its_rows_are_free(exported):
    model = onnx.load(exported[0] / "vit.onnx", load_external_data=False)
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    ends = [*model.graph.input, *model.graph.output]
    assert [end.name for end in ends] == ["input", "output"]
    assert {end.type.tensor_type.shape.dim[0].dim_param for end in ends} == {"batch"}
    assert not [path for path in exported[0].iterdir() if path.name not in EXPORTS]


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_neither_the_examples_values_nor_the_makers_paths_are_in_a_file(tmp_path, suffix):
    adapter, secret = adapted(small_models.vit, small_models.images), torch.full((4, 3, 16, 16), 1234.5678)
    path = tmp_path / f"m{suffix}"
    save(path, adapter.export(), adapter.provenance(), secret)
    if suffix == ".pt2":
        with zipfile.ZipFile(path) as archive:
            content = b"".join(archive.read(name) for name in archive.namelist())
    else:
        content = path.read_bytes()
    assert b"TinyViT" in content  # what the model is called may stay
    for word in (
        secret[0, 0, 0, :2].numpy().tobytes(),
        b"site-packages",
        small_models.__file__.encode(),
        b"self.patches(images)",
    ):
        assert word not in content


# --- models ----------------------------------------------------------------------------------------


class Headed(nn.Module):
    """A linear head after whatever ``change`` does."""

    def __init__(self, change=lambda x: x):
        super().__init__()
        self.norm, self.head, self.change = nn.BatchNorm1d(5), nn.Linear(5, 1), change

    def forward(self, x):
        return self.head(self.norm(self.change(x)))


def moved(model, example=None):
    """Adapter of any model: BatchNorm follows the data."""
    adapter = regtta.Adapter(model, regtta.BNAdapt())
    adapter.adapt(small_models.table(16, shift=1.0) if example is None else example)
    return adapter


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize(
    "change",
    [lambda x: x if x.sum() > 0 else -x, lambda x: x.view(2, 5), lambda x: x if len(x) > 1 else -x],
    ids=["values", "fixed", "rows"],
)
def test_a_model_that_cannot_be_followed_is_refused_in_one_breath(tmp_path, capfd, change, suffix):
    model = Headed()
    adapter = moved(model)
    plain = adapter.export()
    plain.change = change
    path = tmp_path / f"m{suffix}"
    with pytest.raises(ModelError, match=r"torch.export cannot trace the model .*torch.where.*flatten\(1\)"):
        save(path, plain, adapter.provenance(), small_models.table(2))
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    save(tmp_path / "m.safetensors", plain, adapter.provenance())


def test_an_operation_that_onnx_lacks(tmp_path):
    adapter = moved(Headed(torch.special.i0e))
    with pytest.raises(ModelError, match=r"cannot be written as ONNX .*bessel_i0e.*Write .pt2"):
        save(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(2))
    assert not list(tmp_path.iterdir())
    save(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), small_models.table(2))
    x = small_models.table(3)
    np.testing.assert_allclose(ran(tmp_path / "m.pt2", x), adapter.predict(x).numpy(), rtol=0, atol=1e-6)


class Squeezed(Headed):
    def forward(self, x):
        return super().forward(x).squeeze(1)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_outputs_without_a_second_dimension(tmp_path, suffix):
    adapter = moved(Squeezed())
    save(tmp_path / f"m{suffix}", adapter.export(), adapter.provenance(), small_models.table(3))
    for count in (1, 5):
        x = small_models.table(count, seed=6)
        found = ran(tmp_path / f"m{suffix}", x)
        assert found.shape == (count,)
        np.testing.assert_allclose(found, adapter.predict(x).numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_double_precision_stays(tmp_path, suffix):
    adapter = moved(small_models.mlp().double(), small_models.table(16).double())
    save(tmp_path / f"m{suffix}", adapter.export(), adapter.provenance(), small_models.table(3).double())
    x = small_models.table(5, seed=6).double()
    np.testing.assert_allclose(ran(tmp_path / f"m{suffix}", x), adapter.predict(x).numpy(), rtol=0, atol=1e-12)


def test_what_onnxruntime_cannot_run_is_not_kept(tmp_path):
    adapter = moved(small_models.mlp().bfloat16(), small_models.table(16).bfloat16())
    with pytest.raises(ModelError, match=r"onnxruntime cannot run the model .*model.float\(\)"):
        save(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(3).bfloat16())
    assert not list(tmp_path.iterdir())


def test_tied_weights_and_frozen_ones(tmp_path):
    model = small_models.vit().requires_grad_(False)
    model.block.linear2.weight = nn.Parameter(model.block.linear1.weight.T.contiguous())
    model.block.norm2 = model.block.norm1
    adapter = regtta.Adapter(model, regtta.Source(), head="head")
    x = small_models.images(4)
    for suffix in exporting.SUFFIXES:
        save(tmp_path / f"m{suffix}", adapter.export(), adapter.provenance(), x)
    for suffix in (".pt2", ".onnx"):
        np.testing.assert_allclose(ran(tmp_path / f"m{suffix}", x), adapter.predict(x).numpy(), rtol=0, atol=1e-5)
    fresh = copy.deepcopy(model)
    fresh.load_state_dict(load_file(tmp_path / "m.safetensors"))
    assert read_provenance(tmp_path / "m.safetensors").adapted == regtta.fingerprint(fresh)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_server_without_gradients_may_export(tmp_path, mode):
    x, adapter = small_models.table(4), moved(small_models.mlp())
    with mode():
        adapter.adapt(small_models.table(16, seed=6))
        save(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), x)
    np.testing.assert_allclose(ran(tmp_path / "m.pt2", x), adapter.predict(x).numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "example", [small_models.table(1), small_models.table(0), (small_models.table(3), 0), {"x": small_models.table(3)}]
)
def test_an_example_may_be_any_batch(tmp_path, example):
    adapter = moved(small_models.mlp())
    save(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), example)
    x = small_models.table(4)
    np.testing.assert_allclose(ran(tmp_path / "m.pt2", x), adapter.predict(x).numpy(), rtol=0, atol=1e-6)


def test_missing_values_in_the_example_do_not_matter(tmp_path):
    adapter, x = moved(small_models.mlp()), small_models.table(4)
    x[1, 2] = float("nan")
    save(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), x)
    x[:] = float("inf")
    save(tmp_path / "n.onnx", adapter.export(), adapter.provenance(), x)


def test_a_model_in_training_mode_is_exported_in_eval_mode_and_left_in_training_mode(tmp_path):
    adapter = moved(small_models.cnn(), small_models.images(16))
    model = adapter.export().train()
    before = small_models.frozen_view(model)
    for suffix in exporting.SUFFIXES:
        save(tmp_path / f"m{suffix}", model, adapter.provenance(), small_models.images(4))
    small_models.assert_untouched(before, model)
    x = small_models.images(3)
    for suffix in (".pt2", ".onnx"):
        np.testing.assert_allclose(ran(tmp_path / f"m{suffix}", x), adapter.predict(x).numpy(), rtol=0, atol=1e-5)


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", exporting.SUFFIXES)
def test_what_exists_stays_unless_told(tmp_path, suffix):
    adapter, path = moved(small_models.mlp()), tmp_path / f"m{suffix}"
    path.write_text("mine")
    with pytest.raises(ExistingFileError, match="overwrite=True"):
        save(path, adapter.export(), adapter.provenance(), small_models.table(2))
    assert path.read_text() == "mine"
    save(path, adapter.export(), adapter.provenance(), small_models.table(2), overwrite=True)
    assert read_provenance(path).learned == 1
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    with pytest.raises(MissingFileError, match="no folder"):
        save(tmp_path / "none" / path.name, adapter.export(), adapter.provenance(), small_models.table(2))


@pytest.mark.parametrize("suffix", exporting.SUFFIXES)
def test_the_provenance_of_another_moment_is_refused(tmp_path, suffix):
    adapter = moved(small_models.mlp())
    provenance = adapter.provenance()
    adapter.adapt(small_models.table(16, seed=7))
    with pytest.raises(ModelMismatchError, match="no batch between"):
        save(tmp_path / f"m{suffix}", adapter.export(), provenance, small_models.table(2))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named_with_what_installs_it(tmp_path, monkeypatch, exported, package):
    monkeypatch.setitem(sys.modules, package, None)
    adapter = moved(small_models.mlp())
    with pytest.raises(MissingExtraError, match=rf'{package}, which is not installed: pip install "regtta\[export\]"'):
        save(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(2))
    save(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), small_models.table(2))
    assert read_provenance(exported[0] / "mlp.onnx").learned == 3


def test_outputs_that_differ_are_not_kept(tmp_path, monkeypatch):
    real = tracing.run_model
    monkeypatch.setattr(tracing, "run_model", lambda model, x: real(model, x) + 0.01)
    adapter = moved(small_models.mlp())
    for suffix, who in ((".pt2", "the program"), (".onnx", "onnxruntime")):
        with pytest.raises(ModelError, match=rf"outputs of {who} differ from those of the model by up to 0.01"):
            save(tmp_path / f"m{suffix}", adapter.export(), adapter.provenance(), small_models.table(2))
    monkeypatch.setattr(tracing, "run_model", lambda model, x: real(model, x).squeeze(1))
    with pytest.raises(ModelError, match=r"outputs of shape \(2,\) for 2 rows, as the model does, found \(2, 1\)"):
        save(tmp_path / "m.pt2", adapter.export(), adapter.provenance(), small_models.table(2))
    assert not list(tmp_path.iterdir())


def test_what_is_too_large_for_onnx_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_MOST_ONNX", 100)
    adapter = moved(small_models.mlp())
    with pytest.raises(ModelError, match=r"at most 2. Write .pt2"):
        save(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(2))


def test_names_and_examples_that_will_not_do(tmp_path):
    adapter = moved(small_models.mlp())
    with pytest.raises(OptionError, match="ends in .safetensors or .pt2 or .onnx"):
        save(tmp_path / "m.pt", adapter.export(), adapter.provenance(), small_models.table(2))
    with pytest.raises(OptionError, match="pass example="):
        save(tmp_path / "m.pt2", adapter.export(), adapter.provenance())
    with pytest.raises(OptionError, match="ends in"):
        read_provenance(tmp_path / "m.pth")


def test_a_state_that_is_no_tensor_is_refused(tmp_path):
    class Stateful(nn.Linear):
        def get_extra_state(self):
            return {"secret": 1}

    model = Stateful(5, 1)
    provenance = replace(adapted().provenance(), adapted=regtta.fingerprint(model))
    with pytest.raises(ModelError, match="tensors only, found .* at '_extra_state'"):
        save(tmp_path / "m.safetensors", model, provenance)


def test_logging_and_streams_are_as_before_after_an_export(tmp_path):
    adapter, disabled = moved(small_models.mlp()), logging.root.manager.disable
    streams = sys.stdout, sys.stderr
    save(tmp_path / "m.onnx", adapter.export(), adapter.provenance(), small_models.table(2))
    assert logging.root.manager.disable == disabled
    assert (sys.stdout, sys.stderr) == streams


# --- reading ---------------------------------------------------------------------------------------


def archive(path, **entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(f"archive/extra/{name}", content)


def test_files_of_others_say_so(tmp_path):
    save_file({"w": torch.zeros(2)}, tmp_path / "m.safetensors")
    archive(tmp_path / "m.pt2", other="text")
    model = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
    onnx.save(model, tmp_path / "m.onnx")
    for suffix in exporting.SUFFIXES:
        with pytest.raises(ForeignFileError, match="regtta did not export it"):
            read_provenance(tmp_path / f"m{suffix}")
        with pytest.raises(MissingFileError, match="no file"):
            read_provenance(tmp_path / f"none{suffix}")


@pytest.mark.parametrize("file", ["mlp.safetensors", "mlp.pt2", "mlp.onnx"])
def test_a_file_that_is_cut_off_or_not_what_it_is_called(exported, tmp_path, file):
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


def carried(path, text):
    """A file of our three kinds that carries ``text``."""
    if path.suffix == ".safetensors":
        save_file({"w": torch.zeros(2)}, path, metadata={"regtta.persistence.provenance": text})
    elif path.suffix == ".pt2":
        archive(path, **{"regtta.persistence.provenance": text})
    else:
        model = onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], []))
        onnx.helper.set_model_props(model, {"first": "x", "regtta.persistence.provenance": text, "last": "y" * 300})
        onnx.save(model, path)


@pytest.mark.parametrize("suffix", exporting.SUFFIXES)
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
def test_a_provenance_that_is_none(tmp_path, suffix, text, words):
    path = tmp_path / f"m{suffix}"
    carried(path, text)
    with pytest.raises(ForeignFileError, match=words) as caught:
        read_provenance(path)
    assert path.name in str(caught.value)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_a_provenance_of_many_megabytes_is_not_read(tmp_path, suffix):
    path = tmp_path / f"m{suffix}"
    carried(path, "x" * 3_000_000)
    with pytest.raises(ForeignFileError, match=r"more than 1048576 bytes|too large"):
        read_provenance(path)


def test_nothing_in_an_archive_is_unpickled(exported, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("unpickled")

    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr("pickle.load", refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    monkeypatch.setattr("pickle.Unpickler", refuse)
    for suffix in exporting.SUFFIXES:
        assert read_provenance(exported[0] / f"mlp{suffix}").learned == 3


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 1), byte=st.integers(0, 255), suffix=st.sampled_from(exporting.SUFFIXES))
def test_a_flipped_byte_gives_a_provenance_or_one_of_our_errors(exported, tmp_path, position, byte, suffix):
    content = bytearray((exported[0] / f"mlp{suffix}").read_bytes())
    content[int(position * (len(content) - 1))] = byte
    path = tmp_path / f"flipped{suffix}"
    path.write_bytes(content)
    with contextlib.suppress(RegttaError):
        assert isinstance(read_provenance(path), Provenance)


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(props=st.dictionaries(TEXTS, TEXTS, max_size=6), text=TEXTS, inputs=st.integers(0, 5))
def test_metadata_is_read_as_the_package_onnx_reads_it(tmp_path, props, text, inputs):
    from regtta.persistence.export_tools import read_onnx_metadata

    ends = [onnx.helper.make_tensor_value_info(f"x{i}", onnx.TensorProto.FLOAT, [i + 1]) for i in range(inputs)]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "graph", ends, []), doc_string=text)
    onnx.helper.set_model_props(model, props)
    onnx.save(model, tmp_path / "m.onnx")
    read = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    for key in {*props, "absent"}:
        found = read_onnx_metadata(tmp_path / "m.onnx", key, limit=1000)
        assert (None if found is None else found.decode()) == read.get(key)


# --- the provenance itself ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Endless(regtta.SSA):
    """A method of a user's own with an option that JSON has no number for."""

    limit: float = float("inf")


@pytest.mark.parametrize(
    "method",
    [
        regtta.SSA(k=4),
        regtta.BNAdapt(),
        regtta.method("tent+0.5*ssa"),
        regtta.SSA(k=4, optimizer=torch.optim.SGD),
        Endless(k=4),
    ],
    ids=lambda method: method.name,
)
def test_any_method_survives_json(method):
    model = small_models.mlp(outputs=2)
    found = regtta.Adapter(model, method, regtta.collect(model, small_models.table(100).split(50))).provenance()
    again = Provenance.from_text(found.text())
    assert again.to_dict() == found.to_dict() == json.loads(json.dumps(found.to_dict(), allow_nan=False))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": 1, "age": 2}, r"does not know: \['age', 'colour'\]. Upgrade"),
        ({"batches": -1}, "'batches' in the provenance to be a count"),
        ({"learned": True}, "'learned'"),
        ({"batches": None}, "'batches'"),
        ({"source": 3}, "'source' in the provenance to be a string"),
        ({"head": 3}, "'head'"),
        ({"method": "ssa"}, "'method'"),
        ({"begun": "yesterday"}, "'begun' in the provenance to be a date"),
        ({"exported": "2026-01-01T00:00:00"}, "'exported'"),
    ],
)
def test_values_that_will_not_do_are_named(changes, words):
    with pytest.raises(OptionError, match=words):
        Provenance.from_dict(adapted().provenance().to_dict() | changes)


def test_every_field_is_needed():
    whole = adapted().provenance().to_dict()
    assert whole.keys() == {item.name for item in fields(Provenance)}
    for name in whole:
        with pytest.raises(OptionError, match=f"lacks .*{name}"):
            Provenance.from_dict({key: value for key, value in whole.items() if key != name})


def test_a_stream_that_is_taken_up_again_keeps_its_beginning_and_its_counts():
    adapter = adapted()
    state = adapter.state_dict() | {"begun": "2020-01-01T00:00:00+00:00"}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    resumed = regtta.Adapter(small_models.mlp(), adapter.method, adapter.source)
    resumed.load_state_dict(torch.load(buffer, weights_only=True))
    resumed.adapt(small_models.table(16))
    found = resumed.provenance()
    assert (found.begun, found.batches, found.learned) == ("2020-01-01T00:00:00+00:00", 5, 4)
    resumed.reset()
    found = resumed.provenance()
    assert (found.batches, found.learned) == (0, 0)
    assert found.begun > "2025"
    assert found.adapted == found.source


def test_an_adapter_without_a_stream_has_no_provenance():
    with pytest.raises(RegttaError, match="has not found its head yet"):
        regtta.Adapter(small_models.mlp(), regtta.method("tent"), head=None).provenance()
