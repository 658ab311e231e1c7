import copy

import pytest
import torch
from torch import nn

from helpers import small_models
from regtta.errors import OptionError
from regtta_bench.data import Domain
from regtta_bench.training import Recipe, Regression, TrainingCheckpoint, train


def problem(rows=70):
    inputs = small_models.table(rows)
    return Domain(inputs, inputs.sum(1, keepdim=True))


def test_training_is_adam_on_the_mean_squared_error_written_out():
    source, recipe = problem(), Recipe(epochs=3, batch_size=16, lr=1e-3)
    plain = copy.deepcopy(small_models.mlp()).train()
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3, weight_decay=5e-4)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        for rows in torch.randperm(70, generator=generator)[:64].split(16):
            optimizer.zero_grad()
            nn.functional.mse_loss(plain(source.inputs[rows]), source.targets[rows]).backward()
            optimizer.step()
    trained = train(small_models.mlp(), source, recipe, seed=5)
    assert not any(module.training for module in trained.modules())
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(trained.state_dict()[name], value)


def test_one_cycle_of_adamw_written_out():
    source, recipe = problem(), Recipe(epochs=3, batch_size=16, lr=1e-2, optimizer="adamw", schedule="one_cycle")
    plain = copy.deepcopy(small_models.mlp()).train()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=3 * 4)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        for rows in torch.randperm(70, generator=generator)[:64].split(16):
            optimizer.zero_grad()
            nn.functional.mse_loss(plain(source.inputs[rows]), source.targets[rows]).backward()
            optimizer.step()
            schedule.step()
    trained = train(small_models.mlp(), source, recipe, seed=5)
    assert all(torch.equal(trained.state_dict()[name], value) for name, value in plain.state_dict().items())


def test_the_same_seed_twice_is_bit_identical_and_leaves_the_global_generator_alone():
    recipe = Recipe(epochs=2, batch_size=16)
    models = [small_models.mlp() for _ in range(3)]
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, second, other = (
        train(model, problem(), recipe, seed=seed).state_dict() for model, seed in zip(models, (0, 0, 1), strict=True)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["0.weight"], other["0.weight"])


def test_epochs_are_reported_and_too_little_data_is_rejected():
    told = []
    train(
        small_models.mlp(),
        problem(),
        Recipe(epochs=3, batch_size=16),
        seed=0,
        on_epoch=lambda *epoch: told.append(epoch),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(OptionError, match="at least 64 samples to train on, found 20"):
        train(small_models.mlp(), problem(20), Recipe(), seed=0)


def test_an_objective_receives_the_progress_of_the_training():
    class Watching(Regression):
        def __init__(self):
            self.told = []

        def advance(self, progress, optimizer):
            self.told.append(progress)

    objective = Watching()
    train(small_models.mlp(), problem(), Recipe(epochs=2, batch_size=32), seed=0, objective=objective)
    assert objective.told == [0, 0.25, 0.5, 0.75]


def test_images_are_cropped_in_training_only_if_the_recipe_says_so():
    source = Domain(small_models.images(32), torch.zeros(32, 1))
    plain, cropped = (
        train(small_models.cnn(), source, Recipe(epochs=1, batch_size=16, crop_padding=p), seed=0).state_dict()
        for p in (0, 4)
    )
    assert not torch.equal(plain["0.weight"], cropped["0.weight"])


def test_invalid_recipes_are_rejected():
    for options in ({"epochs": 0}, {"batch_size": 0}, {"lr": 0}, {"weight_decay": -1}, {"crop_padding": -1}):
        with pytest.raises(OptionError):
            Recipe(**options)
    for options in ({"optimizer": "sgd"}, {"schedule": "cosine"}):
        with pytest.raises(OptionError):
            Recipe(**options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("schedule", ["constant", "one_cycle"])
def test_a_step_on_a_gpu_trains_like_one_on_the_cpu(schedule):
    source = problem(640)
    recipe = Recipe(epochs=3, batch_size=64, lr=1e-3, schedule=schedule)
    here = train(small_models.mlp(), source, recipe, seed=0)
    there = train(small_models.mlp().cuda(), source, recipe, seed=0).cpu()
    for name, value in here.state_dict().items():
        torch.testing.assert_close(there.state_dict()[name], value, rtol=1e-2, atol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("mixed", [False, True])
def test_images_on_a_gpu_train_as_here_in_either_precision_and_come_back_in_plain_layout(mixed):
    images = small_models.images(320)
    source = Domain(images, 3 * images.mean(dim=(1, 2, 3)).unsqueeze(1))
    recipe = Recipe(epochs=8, batch_size=32, lr=1e-2, mixed_precision=mixed)
    here, there = (
        train(small_models.cnn(), source, recipe, seed=0),
        train(small_models.cnn().cuda(), source, recipe, seed=0).cpu(),
    )
    errors = [nn.functional.mse_loss(model(images), source.targets).item() for model in (here, there)]
    untrained = nn.functional.mse_loss(small_models.cnn()(images), source.targets).item()
    assert max(errors) < 0.3 * untrained
    assert all(value.is_contiguous() for value in there.state_dict().values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_training_on_a_gpu_goes_on_from_its_checkpoint(tmp_path):
    path, source = tmp_path / "partial.pt", problem(640)

    def stop(done, of):
        if done == 2:
            raise KeyboardInterrupt

    recipe = Recipe(epochs=4, batch_size=64, lr=1e-3)
    with pytest.raises(KeyboardInterrupt):
        train(
            small_models.mlp().cuda(),
            source,
            recipe,
            seed=0,
            on_epoch=stop,
            checkpoint=TrainingCheckpoint(path, every=0),
        )
    resumed = train(
        small_models.mlp().cuda(), source, recipe, seed=0, checkpoint=TrainingCheckpoint(path, every=0)
    ).cpu()
    whole = train(small_models.mlp().cuda(), source, recipe, seed=0).cpu()
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], value, rtol=1e-2, atol=1e-3)
