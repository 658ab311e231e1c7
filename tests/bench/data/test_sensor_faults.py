import numpy as np
import pytest
import torch

from regtta_bench.data import SENSOR_FAULTS

FIRST = ("drift", "dropout", "noise")
rng = np.random.default_rng(0)
INPUTS, SOURCE = rng.normal(size=(5000, 11)), rng.normal(size=(40, 11))


def faulty(name):
    return SENSOR_FAULTS[name].apply(torch.tensor(INPUTS), torch.tensor(SOURCE)).numpy()


@pytest.mark.parametrize("name", SENSOR_FAULTS)
def test_every_third_column_is_faulty_and_no_other(name):
    start = 0 if name in FIRST else 1
    changed = (faulty(name) != INPUTS).any(axis=0)
    assert np.flatnonzero(changed).tolist() == list(range(start, 11, 3))


@pytest.mark.parametrize(
    ("name", "gain", "offset", "columns"),
    [
        ("drift", 1.4, 0.8, [0, 3, 6, 9]),
        ("weak_drift", 1.2, 0.4, [1, 4, 7, 10]),
        ("strong_drift", 1.8, 1.6, [1, 4, 7, 10]),
    ],
)
def test_a_drift_is_a_gain_and_an_offset(name, gain, offset, columns):
    np.testing.assert_allclose(faulty(name)[:, columns], gain * INPUTS[:, columns] + offset)


@pytest.mark.parametrize(("name", "columns"), [("dropout", [0, 3, 6, 9]), ("other_dropout", [1, 4, 7, 10])])
def test_a_dropped_out_sensor_reads_the_minimum_of_the_source(name, columns):
    expected = np.broadcast_to(SOURCE.min(axis=0)[columns], (len(INPUTS), 4))
    np.testing.assert_array_equal(faulty(name)[:, columns], expected)


@pytest.mark.parametrize(("name", "sd", "columns"), [("noise", 1.0, [0, 3, 6, 9]), ("weak_noise", 0.5, [1, 4, 7, 10])])
def test_noise_is_normal_and_the_same_every_time(name, sd, columns):
    noise = (faulty(name) - INPUTS)[:, columns]
    np.testing.assert_array_equal(noise, (faulty(name) - INPUTS)[:, columns])
    assert noise.mean() == pytest.approx(0, abs=4 * sd / np.sqrt(noise.size))
    assert noise.std() == pytest.approx(sd, rel=0.03)
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.06


def test_the_inputs_are_not_modified():
    inputs = torch.tensor(INPUTS)
    for fault in SENSOR_FAULTS.values():
        fault.apply(inputs, torch.tensor(SOURCE))
    np.testing.assert_array_equal(inputs, INPUTS)
