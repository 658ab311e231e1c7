import dataclasses

import pytest
import torch

from helpers import small_models
from regtta.errors import InvalidFileError
from regtta_bench.data import Domain
from regtta_bench.training import Recipe, TrainingCheckpoint, train
from regtta_bench.training.loop import TrainingState
from regtta_bench.training.objectives import AdversarialObjective, RotationObjective

RECIPE = Recipe(epochs=5, batch_size=16, lr=1e-2, crop_padding=2)
ONE_CYCLE = dataclasses.replace(RECIPE, optimizer="adamw", schedule="one_cycle")


class StoppedError(Exception):
    pass


def objective(kind):
    if kind == "dann":
        return AdversarialObjective("9", 10, small_models.images(40, seed=5), recipe=RECIPE, seed=1)
    return RotationObjective("9", 10, seed=1) if kind == "rotation" else None


def trained(kind, checkpoint=None, stop_after=None):
    images = small_models.images(50)

    def on_epoch(done, of):
        assert of == RECIPE.epochs
        if done == stop_after:
            raise StoppedError

    source = Domain(images, images.mean(dim=(1, 2, 3)).unsqueeze(1))
    beside = objective(kind)
    recipe = ONE_CYCLE if kind == "one cycle" else RECIPE
    model = train(
        small_models.cnn(), source, recipe, seed=3, objective=beside, on_epoch=on_epoch, checkpoint=checkpoint
    )
    parts = [model, *(beside.modules if beside else [])]
    return [value for part in parts for value in part.state_dict().values()]


@pytest.mark.parametrize("kind", ["regression", "one cycle", "rotation", "dann"])
def test_a_resumed_training_is_bit_identical(kind, tmp_path):
    path = tmp_path / "partial.pt"
    with pytest.raises(StoppedError):
        trained(kind, TrainingCheckpoint(path, every=0), stop_after=3)
    assert path.exists()
    resumed = trained(kind, TrainingCheckpoint(path, every=0))
    whole = trained(kind)
    assert all(torch.equal(a, b) for a, b in zip(resumed, whole, strict=True))
    assert not path.exists()


def test_a_resumed_training_skips_completed_epochs(tmp_path):
    path, epochs = tmp_path / "partial.pt", []
    with pytest.raises(StoppedError):
        trained("regression", TrainingCheckpoint(path, every=0), stop_after=3)
    source = Domain(small_models.images(50), torch.ones(50, 1))
    train(
        small_models.cnn(),
        source,
        RECIPE,
        seed=3,
        on_epoch=lambda done, of: epochs.append(done),
        checkpoint=TrainingCheckpoint(path),
    )
    assert epochs == [4, 5]


def test_no_checkpoint_is_written_before_the_interval_has_passed(tmp_path):
    path = tmp_path / "partial.pt"
    with pytest.raises(StoppedError):
        trained("regression", TrainingCheckpoint(path, every=3600), stop_after=4)
    assert not path.exists()


def test_the_state_of_another_training_is_rejected(tmp_path):
    path = tmp_path / "partial.pt"
    path.write_bytes(b"not a state")
    with pytest.raises(InvalidFileError, match="Remove it to train from the start"):
        trained("regression", TrainingCheckpoint(path))
    torch.save({"epochs": 2, "trained": {"modules": [small_models.mlp().state_dict()]}}, path)
    with pytest.raises(InvalidFileError, match="Remove it to train from the start"):
        trained("regression", TrainingCheckpoint(path))


class Runs:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


def test_a_pickle_is_rejected_and_never_run(tmp_path):
    path = tmp_path / "partial.pt"
    torch.save({"epochs": 2, "trained": Runs()}, path)
    with pytest.raises(InvalidFileError, match="Remove it to train from the start"):
        trained("regression", TrainingCheckpoint(path))


def test_training_starts_at_epoch_zero_without_a_file(tmp_path):
    state = TrainingState((), torch.optim.SGD(small_models.mlp().parameters()), torch.Generator(), torch.device("cpu"))
    assert TrainingCheckpoint(None).resume(state) == TrainingCheckpoint(tmp_path / "none.pt").resume(state) == 0
