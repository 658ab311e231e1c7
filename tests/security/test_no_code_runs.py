"""What could run code out of a file or out of an option is nowhere in the sources; ``--model`` names, and no more."""

import ast
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

import regtta
import regtta_bench
from regtta.cli.user_code import import_object, load_model
from regtta.errors import RegttaError
from regtta_bench.data.torchvision_sets import read_batch
from security.file_builders import Payload

SOURCES = sorted(path for package in (regtta, regtta_bench) for path in Path(package.__file__).parent.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
PICKLING = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle"}
EVALUATING = {"eval", "exec", "compile", "__import__"}
PICKLE_READERS = {"read_pickle", "unpickle", "Unpickler", "find_class"}


def calls():
    """Every call in the sources: where, the last part of its name, its whole name and the call."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                whole = ast.unparse(node.func)
                yield f"{path.name}:{node.lineno}", whole.rsplit(".", 1)[-1], whole, node


def keyword(call: ast.Call, name: str) -> object:
    found = [known.value for known in call.keywords if known.arg == name]
    return found[0].value if found and isinstance(found[0], ast.Constant) else None


def test_the_sources_are_found():
    assert len(SOURCES) > 100


def test_nothing_that_loads_pickles_is_imported():
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & PICKLING, f"{path}:{node.lineno}"


def test_torch_and_numpy_are_told_not_to_load_pickles():
    seen = []
    for where, name, whole, call in calls():
        assert name not in PICKLE_READERS, where
        if whole in ("torch.load", "torch.jit.load", "torch.hub.load"):
            assert whole == "torch.load", where
            assert keyword(call, "weights_only") is True, where
            seen.append(whole)
        if whole in ("np.load", "numpy.load") or name == "read_array":
            assert keyword(call, "allow_pickle") is False, where
            seen.append(name)
        if name == "open_memmap":  # which maps no objects
            assert keyword(call, "mode") == "r", where
    assert {"torch.load", "read_array"} <= set(seen)


def test_torchvision_reads_only_what_is_no_pickle():
    """Its readers of CIFAR-10 load pickles, and those of MNIST may; both are read here."""
    built = [(where, whole) for where, _, whole, _ in calls() if whole.startswith(("sets.", "datasets."))]
    assert {whole for _, whole in built} <= {
        *("sets.SVHN", "sets.MNIST", "sets.utils.check_integrity", "sets.cifar.download_and_extract_archive"),
    }, built


def test_nothing_is_evaluated():
    for where, _, whole, call in calls():
        assert whole not in EVALUATING, where
        assert keyword(call, "shell") is not True, where
        assert whole not in ("os.system", "os.popen"), where


def test_a_batch_of_cifar10_as_python_2_wrote_it_is_read_and_a_payload_in_it_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pixels = bytes(range(256)) * 12
    published = (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x14testing batch 1 of 1q\x03U\x06labelsq\x04]q\x05(K\x03eU\x04dataq\x06"
        b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\t"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00" + pixels + b"tbU\tfilenamesq\x0c]q\rU\x05a.pngau."
    )
    loaded = pickle.loads(published, encoding="latin1")  # which is what torchvision does
    (tmp_path / "test_batch").write_bytes(published)
    images, labels = read_batch(tmp_path / "test_batch")
    assert (images == loaded["data"].reshape(1, 3, 32, 32).transpose(0, 2, 3, 1)).all()
    assert labels.tolist() == loaded["labels"] == [3]
    with_payload = published[:-2] + b"U\x01xcposix\nsystem\nU\x0ctouch canary\x85Ru."
    (tmp_path / "test_batch").write_bytes(with_payload)
    read_batch(tmp_path / "test_batch")  # what it would have called is noted, and left alone
    assert not (tmp_path / "canary").exists()
    pickle.loads(with_payload, encoding="latin1")
    assert (tmp_path / "canary").exists(), "the payload is one"


def test_the_payload_of_the_attacks_would_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Payload()))
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "text",
    [
        "a;b",
        "a;b:c",
        "__import__('os')",
        "__import__('os'):system",
        "os:system('touch canary')",
        "../x:y",
        "/tmp/x:y",
        "x:y()",
        "x:y[0]",
        "x: y",
        "x:y\n",
        "x\0:y",
        "x:y:z",
        "http://x:y",
        ".x:y",
        "os.system('touch canary'):x",
        "lambda: 0",
        "",
    ],
)
def test_what_is_no_name_is_refused_and_nothing_is_imported(text, tmp_path, monkeypatch):
    (tmp_path / "x.py").write_text("from pathlib import Path\nPath('canary').touch()\ny = 1\n")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    with pytest.raises(RegttaError, match="Expected --model to be package.module:name"):
        import_object(text, "--model")
    assert set(sys.modules) == before
    assert not (tmp_path / "canary").exists()


def test_a_function_of_the_system_is_named_and_given_nothing_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert import_object("os:system", "--model") is os.system
    with pytest.raises(RegttaError, match="--model os:system raised.*called without arguments"):
        load_model("os:system")
    assert not list(tmp_path.iterdir())


def test_nothing_but_the_module_that_is_named_is_imported(tmp_path, monkeypatch):
    package = tmp_path / "a_package_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "named.py").write_text("import torch\ndef make():\n    return torch.nn.Linear(2, 1)\n")
    for other in (package / "sibling.py", package / "conftest.py", package / "__main__.py", tmp_path / "sitecustom.py"):
        other.write_text("raise SystemExit('imported without being named')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    assert isinstance(load_model("a_package_of_mine.named:make"), nn.Linear)
    own = {name for name in set(sys.modules) - before if getattr(sys.modules[name], "__file__", None)}
    assert {n for n in own if str(tmp_path) in str(sys.modules[n].__file__)} == {
        "a_package_of_mine",
        "a_package_of_mine.named",
    }


def test_a_file_beside_the_model_stands_in_for_nothing_that_regtta_imports(tmp_path):
    """regtta imports pandas late, after the folder of the user's model has come onto the path."""
    (tmp_path / "mymodel.py").write_text("import torch\ndef make():\n    return torch.nn.Linear(1, 1)\n")
    (tmp_path / "pandas.py").write_text("raise SystemExit('the wrong pandas')\n")
    (tmp_path / "t.csv").write_text("a\n1\n")
    code = (
        "import sys; sys.path = [p for p in sys.path if p]\n"
        "from regtta.cli.user_code import load_model\n"
        "from regtta.cli.data.open_data import DataOptions, open_data\n"
        "load_model('mymodel:make')\n"
        "assert 'pandas' not in sys.modules\n"
        "print(len(list(open_data(DataOptions('t.csv'), batch_size=1).batches())))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(regtta.__file__).parent.parent), "PYTHONSAFEPATH": "1"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.strip()) == (0, "1"), run.stderr[-2000:]
