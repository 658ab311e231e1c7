import torch

from regtta_bench.demo.demo_data import split_digits, uci_digits
from regtta_bench.demo.demo_model import DigitTraining, digit_regressor, train_digit_regressor


def states(model: torch.nn.Module) -> list[torch.Tensor]:
    return list(model.state_dict().values())


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(states(one), states(other), strict=True))


def test_model_depends_on_its_seed_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    assert same(digit_regressor(0), digit_regressor(0))
    assert not same(digit_regressor(0), digit_regressor(1))
    assert torch.equal(torch.get_rng_state(), before)


def test_model_has_four_blocks_of_batch_norm():
    layers = [m for m in digit_regressor(0).modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert [layer.num_features for layer in layers] == [8, 16, 32, 128]


def test_training_learns_counts_epochs_and_repeats_bit_for_bit():
    source = split_digits(uci_digits(), 0, source=150).source
    ticks = []
    first = train_digit_regressor(source, 0, DigitTraining(epochs=8), on_epoch=lambda: ticks.append(1))
    torch.rand(3)
    assert same(first, train_digit_regressor(source, 0, DigitTraining(epochs=8)))
    assert len(ticks) == 8
    assert not first.training

    def error(model: torch.nn.Module) -> float:
        with torch.no_grad():
            return float(((model(source.inputs).squeeze(1) - source.targets) ** 2).mean())

    assert error(first) < error(digit_regressor(0).eval()) / 2
