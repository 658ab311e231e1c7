"""Adapters that hand out the source model's predictions or a mixture, and labels that come late."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import regtta
from golden.streams import FOLDER, STREAMS
from helpers import small_models
from helpers.states import assert_same
from regtta.engine.mixture import INITIAL_GAP
from regtta.engine.serving import ServingOptions, _project
from regtta.errors import BatchError, MismatchError, OptionError, RegttaError, StateError
from regtta.execution import make_communicator
from regtta.persistence import read_provenance, save_model
from regtta.persistence.state_files import read_state, write_state

SIZE = 16
STREAM = small_models.table(12 * SIZE, shift=1.0, scale=1.5, seed=2).split(SIZE)
GENERATOR = torch.Generator().manual_seed(5)
LABELS = torch.randn(12, SIZE, 2, generator=GENERATOR)


def make(serve, outputs=2, **options):
    model = small_models.mlp(outputs)
    source = regtta.collect(model, small_models.table(400).split(50))
    return regtta.Adapter(model, regtta.SSA(k=4, lr=1e-2), source, serve=serve, **options)


def predictions_of_both(stream=STREAM, outputs=2):
    """Return the predictions of the source model and of an adapter that serves the adapted model."""
    adapter, model = make("adapted", outputs), small_models.mlp(outputs)
    with torch.no_grad():
        return [model(x) for x in stream], [adapter.adapt(x).predictions for x in stream]


def output_range(outputs=2):
    """Return the range of the labels, from the outputs of the source model on the source samples."""
    with torch.no_grad():
        found = small_models.mlp(outputs)(small_models.table(400)).double()
    return found.mean(dim=0) - 4 * found.std(dim=0), found.mean(dim=0) + 4 * found.std(dim=0)


class Reference:
    """Mixture in numpy, which stores every prediction."""

    def __init__(self, low, high):
        self.low, self.high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        self.sums, self.gap, self.largest = np.zeros(2), 0.0, INITIAL_GAP

    @property
    def weights(self):
        log = -np.log(2) / self.largest * self.sums
        return np.exp(log - np.logaddexp.reduce(log))

    def mean(self, source, adapted, weights):
        return weights[0] * self.project(source, adapted) + weights[1] * self.project(adapted, source)

    def project(self, values, others):
        """Replace values outside the range if the others are inside it and closer to both of its ends."""
        outside = (values < self.low) | (values > self.high)
        inside = (others >= self.low) & (others <= self.high)
        closer = [abs(values - end) >= abs(others - end) for end in (self.low, self.high)]
        return np.clip(np.where(outside & inside & closer[0] & closer[1], others, values), self.low, self.high)

    def loss(self, prediction, label):
        scaled = (prediction - np.clip(label, self.low, self.high)) / (self.high - self.low)
        return float(np.minimum(scaled**2, 1).mean())

    def label(self, source, adapted, weights, label):
        rate, log = np.log(2) / self.largest, np.log(self.weights)
        losses = np.array([self.loss(source, label), self.loss(adapted, label)])
        mix = -np.logaddexp.reduce(log - rate * losses) / rate
        self.gap += self.loss(self.mean(source, adapted, weights), label) - mix
        self.largest = max(self.largest, self.gap)
        self.sums += losses


# --- shadow mode ---------------------------------------------------------------------------------


def test_shadow_mode_hands_out_the_source_model_bit_for_bit_while_the_adapter_learns():
    source, _ = predictions_of_both()
    shadow, plain, model = make("source"), make("adapted"), small_models.mlp(2)
    for x, expected in zip(STREAM, source, strict=True):
        step, other = shadow.adapt(x), plain.adapt(x)
        assert torch.equal(step.predictions, expected)
        assert step.served == "source"
        assert other.served == "adapted"
        assert step.diagnostics == other.diagnostics
    assert torch.equal(shadow.predict(STREAM[0]), source[0])
    assert not torch.equal(plain.predict(STREAM[0]), source[0])
    assert_same(dict(shadow.model.state_dict()), dict(plain.model.state_dict()))
    assert not torch.equal(shadow.model[0].weight, model[0].weight) or not torch.equal(
        shadow.model[1].weight, model[1].weight
    )
    assert_same(dict(shadow.export().state_dict()), dict(plain.export().state_dict()))


def test_shadow_mode_measures_both_models_with_labels():
    source, adapted = predictions_of_both(STREAM[:3])
    shadow = make("source")
    for x in STREAM[:3]:
        shadow.adapt(x)
    scores = shadow.feedback(1, LABELS[1])
    reference = Reference(*output_range())
    for name, values in (("source_loss", source[1]), ("adapted_loss", adapted[1])):
        expected = np.mean([reference.loss(*row) for row in zip(values.numpy(), LABELS[1].numpy(), strict=True)])
        assert getattr(scores, name) == pytest.approx(expected, rel=1e-4)
    assert torch.equal(shadow.adapt(STREAM[0]).predictions, source[0])


def test_rejected_batches_and_excluded_rows_are_served_as_well():
    x = STREAM[0].clone()
    x[3] = math.nan
    expected = small_models.mlp(2)(x).detach()
    for serve in ("source", "mixture"):
        adapter = make(serve)
        step = adapter.adapt(x)
        assert step.excluded_rows == (3,)
        assert step.predictions[3].isnan().all()
        assert step.predictions[:3].isfinite().all()
        single = adapter.adapt(STREAM[1][:1])
        assert not single.adapted
        assert len(single.predictions) == 1
        if serve == "source":
            assert torch.equal(step.predictions[:3], expected[:3])
        before = adapter.feedback(0, LABELS[0][3:4], rows=[3])
        assert (before.adapted_weight, before.labels) == (0.5, 1)  # neither model has a prediction for it
        assert adapter.feedback(0, LABELS[0][:3], rows=[0, 1, 2]).labels == 4


# --- the mixture ---------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 1, 5])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_mixture_equals_a_numpy_reimplementation_with_delayed_labels(delay, outputs):
    both = [torch.stack(part).numpy() for part in predictions_of_both(outputs=outputs)]
    labels = LABELS[..., :outputs]
    adapter, reference = make("mixture", outputs), Reference(*output_range(outputs))
    used = []
    for time, x in enumerate(STREAM):
        step = adapter.adapt(x)
        used.append(reference.weights)
        expected = reference.mean(both[0][time], both[1][time], used[-1])
        np.testing.assert_allclose(step.predictions.numpy(), expected, rtol=1e-4, atol=1e-5)
        assert step.served == "mixture"
        late = time - delay
        if late >= 0:
            scores = adapter.feedback(late, labels[late])
            for row in range(SIZE):
                reference.label(both[0][late][row], both[1][late][row], used[late], labels[late][row].numpy())
            np.testing.assert_allclose(
                [scores.source_weight, scores.adapted_weight], reference.weights, rtol=1e-3, atol=1e-6
            )
    assert abs(scores.adapted_weight - 0.5) > 0.05
    with torch.no_grad():
        source, adapted = small_models.mlp(outputs)(STREAM[0]).numpy(), adapter.model(STREAM[0]).numpy()
    expected = reference.mean(source, adapted, reference.weights)
    np.testing.assert_allclose(adapter.predict(STREAM[0]).numpy(), expected, rtol=1e-3, atol=1e-4)


def test_subsets_of_rows_in_any_order_count_each_sample_once():
    whole, parts = make("mixture"), make("mixture")
    for x in STREAM[:3]:
        whole.adapt(x)
        parts.adapt(x)
    whole.feedback(0, LABELS[0])
    expected = whole.feedback(2, LABELS[2])
    order = [(2, range(8, 16)), (0, [1, 0, 5]), (2, range(8)), (0, [2, 3, 4, *range(6, 16)])]
    for step, rows in order:
        found = parts.feedback(step, LABELS[step][list(rows)], rows=rows)
    assert found.labels == expected.labels == 32
    assert found.source_loss == pytest.approx(expected.source_loss)
    assert found.adapted_loss == pytest.approx(expected.adapted_loss)
    for step in (0, 2):
        with pytest.raises(BatchError, match=r"second one for rows \[7\]"):
            parts.feedback(step, LABELS[step][7:8], rows=[7])
    assert parts.feedback(1, LABELS[1][:0], rows=[]) == found


def test_an_error_counts_no_label():
    adapter = make("mixture")
    adapter.adapt(STREAM[0])
    adapter.feedback(0, LABELS[0][:1], rows=[0])
    before = copy.deepcopy(adapter.state_dict())
    for y, rows in ((LABELS[0][:2], [1, 0]), (LABELS[0] * math.nan, None), (LABELS[0][:2], [1, 99])):
        with pytest.raises(BatchError):
            adapter.feedback(0, y, rows=rows)
    assert_same(before, adapter.state_dict())


def test_the_memory_is_bounded():
    adapter = make("mixture", feedback_memory=3 * SIZE)
    for x in STREAM[:5]:
        adapter.adapt(x)
    with pytest.raises(
        RegttaError, match=r"step 1 are no longer stored: feedback_memory=48 samples reach back to step 2"
    ):
        adapter.feedback(1, LABELS[1])
    assert adapter.feedback(2, LABELS[2]).labels == SIZE
    history = adapter.state_dict()["feedback"]["history"]
    assert len(history["labelled"]) == 3 * SIZE


def test_feedback_without_serving_names_the_option():
    adapter = make("adapted")
    adapter.adapt(STREAM[0])
    with pytest.raises(OptionError, match='serve="mixture"'):
        adapter.feedback(0, LABELS[0])


VALUES = st.floats(-40, 40)


@settings(max_examples=300)
@given(VALUES, st.one_of(VALUES, st.just(math.inf), st.just(-math.inf)), st.floats(-1, 3))
def test_a_projected_prediction_is_at_most_as_far_from_any_label_in_the_range(value, other, label):
    low, high = torch.tensor(-1.0, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)
    values, others = (torch.tensor([number], dtype=torch.float64) for number in (value, other))
    found = float(_project(values, others, low, high))
    assert -1 <= found <= 3
    assert abs(found - label) <= abs(value - label)
    if -1 <= value <= 3:
        assert found == value


def test_predictions_far_outside_the_range_and_nan_are_replaced_by_the_other_model():
    low, high = torch.tensor(0.0), torch.tensor(1.0)
    values = torch.tensor([9.0, -9.0, 1.2, math.nan, 9.0, math.inf, math.nan])
    others = torch.tensor([0.3, 0.3, 0.3, 0.3, -2.0, 0.3, math.nan])
    expected = torch.tensor([0.3, 0.3, 1.0, 0.3, 1.0, 0.3, math.nan])
    torch.testing.assert_close(_project(values, others, low, high), expected, equal_nan=True)


def test_outputs_of_any_size_are_recognised_as_those_of_the_head():
    adapter = make("mixture")
    assert adapter.adapt(STREAM[0] * 1e12).served == "mixture"
    assert adapter.feedback(0, LABELS[0]).labels == SIZE


def test_a_source_model_far_outside_the_range_does_not_spoil_the_first_predictions():
    adapter = make("mixture", feedback_range=([-5.0, -5.0], [5.0, 5.0]))
    far = STREAM[0] * 1e4
    step = adapter.adapt(far)
    plain = make("adapted").adapt(far)
    assert small_models.mlp(2)(far).abs().min() > 100
    torch.testing.assert_close(step.predictions, plain.predictions.clamp(-5, 5))
    scores = adapter.feedback(0, LABELS[0])
    assert scores.source_loss == 1
    assert scores.adapted_weight > 0.99


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"serve": "both"}, "serve"),
        ({"serve": None}, "serve"),
        ({"serve": "mixture", "feedback_memory": 0}, "feedback_memory"),
        ({"serve": "mixture", "feedback_memory": 1.5}, "feedback_memory"),
        ({"serve": "adapted", "feedback_range": (0, 1)}, "feedback_range"),
        *(
            ({"serve": "mixture", "feedback_range": value}, "feedback_range")
            for value in [(1, 0), (0, 0), (0, math.inf), (math.nan, 1), 3, "ab", (0, "1"), (0, 1, 2), (False, True)]
        ),
        ({"serve": "mixture", "feedback_range": ([0, 1], [1, 2, 3])}, "feedback_range"),
        ({"serve": "mixture", "feedback_range": (torch.zeros(2, 2), 1)}, "feedback_range"),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(OptionError, match=words):
        make(**options)


def test_the_default_range_is_that_of_the_outputs_of_the_source_model():
    adapter = make("mixture")
    feedback, (low, high) = adapter.state_dict()["feedback"], output_range()
    torch.testing.assert_close(feedback["low"], low, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(feedback["high"], high, rtol=1e-4, atol=1e-4)


def test_a_range_is_required_without_statistics():
    model = small_models.mlp()
    with pytest.raises(OptionError, match="feedback_range="):
        regtta.Adapter(model, regtta.BNAdapt(), serve="mixture")
    adapter = regtta.Adapter(model, regtta.BNAdapt(), serve="mixture", feedback_range=(-2, 2))
    adapter.adapt(STREAM[0])
    assert adapter.feedback(0, LABELS[0][:, 0]).labels == SIZE
    shadow = regtta.Adapter(model, regtta.BNAdapt(), serve="source")
    assert torch.equal(shadow.adapt(STREAM[0]).predictions, model(STREAM[0]).detach())
    copied = copy.deepcopy(shadow)
    with pytest.raises(OptionError, match="not known.*feedback_range="):
        copied.feedback(0, LABELS[0][:, 0])


def test_a_range_is_required_if_the_model_transforms_the_outputs_of_its_head():
    model = nn.Sequential(*small_models.mlp(), nn.Softplus())
    source = regtta.collect(model, small_models.table(100).split(50), head="6")
    adapter = regtta.Adapter(model, regtta.SSA(k=4), source, serve="mixture")
    with pytest.raises(OptionError, match="not the outputs of its head.*feedback_range"):
        adapter.adapt(STREAM[0])
    ranged = regtta.Adapter(model, regtta.SSA(k=4), source, serve="mixture", feedback_range=(0.0, 3.0))
    assert ranged.adapt(STREAM[0]).adapted
    shadow = regtta.Adapter(model, regtta.SSA(k=4), source, serve="source")
    shadow.adapt(STREAM[0])
    for served in (shadow, copy.deepcopy(shadow)):
        with pytest.raises(OptionError, match="not the outputs of its head.*feedback_range"):
            served.feedback(0, LABELS[0][:, 0])


def test_a_range_is_required_if_the_outputs_of_the_source_model_are_constant():
    model = small_models.mlp()
    nn.init.zeros_(model[6].weight)
    source = regtta.collect(model, small_models.table(100).split(50))
    with pytest.raises(OptionError, match="do not vary.*feedback_range"):
        regtta.Adapter(model, regtta.BNAdapt(), source, serve="mixture")


def test_a_range_of_other_outputs_is_an_error():
    for serve in ("source", "mixture"):
        adapter = make(serve, feedback_range=([0.0] * 3, [1.0] * 3))
        before = copy.deepcopy(adapter.state_dict())
        with pytest.raises(OptionError, match=r"3 outputs, but predictions have the shape \(16, 2\)"):
            adapter.adapt(STREAM[0])
        assert_same(before, adapter.state_dict())  # nothing was learned


@pytest.mark.parametrize("serve", ["source", "mixture"])
def test_a_process_group_is_an_error(serve):
    class TwoProcesses:
        size = 2

    ServingOptions().check(None, make_communicator(None))
    with pytest.raises(OptionError, match="process group"):
        ServingOptions(serve, (0.0, 1.0)).check(None, TwoProcesses())


# --- states --------------------------------------------------------------------------------------


def run_to(adapter, batches, first=0):
    """Adapt to batches, with labels of half of the rows two batches later; return all predictions."""
    found = []
    for time in range(first, batches):
        found.append(adapter.adapt(STREAM[time]).predictions)
        if time >= 2:
            adapter.feedback(time - 2, LABELS[time - 2][::2], rows=range(0, SIZE, 2))
    return found


@pytest.mark.parametrize("serve", ["source", "mixture"])
def test_a_resumed_stream_continues_exactly(serve, tmp_path):
    whole, first = make(serve), make(serve)
    expected = run_to(whole, 12)
    run_to(first, 6)
    write_state(tmp_path / "state.safetensors", first.state_dict())
    second = make(serve)
    second.load_state_dict(read_state(tmp_path / "state.safetensors"))
    with pytest.raises(BatchError, match="second one"):
        second.feedback(0, LABELS[0][:1], rows=[0])
    copied = copy.deepcopy(second)
    for adapter in (second, copied):
        assert all(map(torch.equal, run_to(adapter, 12, first=6), expected[6:]))
        assert_same(adapter.state_dict()["feedback"], whole.state_dict()["feedback"])


def test_reset_and_to_a_device():
    adapter = make("mixture")
    start = copy.deepcopy(adapter.state_dict()["feedback"])
    expected = run_to(adapter, 6)
    before = copy.deepcopy(adapter.state_dict()["feedback"])
    adapter.to("cpu")
    assert_same(before, adapter.state_dict()["feedback"])
    adapter.reset()
    assert_same(start, adapter.state_dict()["feedback"])
    assert all(map(torch.equal, run_to(adapter, 6), expected))


def test_a_rollback_keeps_the_weights():
    adapter = make("mixture")
    run_to(adapter, 6)
    before = copy.deepcopy(adapter.state_dict()["feedback"])
    assert adapter.rollback() == "source"
    assert_same(before, adapter.state_dict()["feedback"])
    low, high = output_range()
    expected = small_models.mlp(2)(STREAM[0]).detach()
    torch.testing.assert_close(adapter.predict(STREAM[0]), expected.clamp(low.float(), high.float()))


def test_shadow_mode_can_be_resumed_as_a_mixture_and_other_streams_as_either():
    shadow, mixture, plain = make("source"), make("mixture"), make("adapted")
    run_to(shadow, 6)
    mixture.load_state_dict(shadow.state_dict())
    assert mixture.state_dict()["feedback"]["mixture"]["labels"] == 4 * SIZE // 2
    with pytest.raises(MismatchError, match='serve="mixture" or serve="source"'):
        plain.load_state_dict(shadow.state_dict())
    plain.adapt(STREAM[0])
    mixture.load_state_dict(plain.state_dict())
    assert mixture.state_dict()["feedback"]["mixture"]["labels"] == 0
    with pytest.raises(BatchError, match="no longer stored"):
        mixture.feedback(0, LABELS[0])


def test_a_stream_of_0_1_0_resumes_in_shadow_mode():
    golden = STREAMS["mlp_ssa_default"]
    adapter = golden.adapter()
    shadow = regtta.Adapter(
        adapter.model, adapter.method, adapter.source, guards=adapter.guards, serve="source", feedback_range=(-9, 9)
    )
    state = read_state(FOLDER / "state_alone.safetensors")
    shadow.load_state_dict(state)
    adapter.load_state_dict(state)
    assert_same(dict(shadow.model.state_dict()), dict(adapter.model.state_dict()))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("low",), torch.zeros(3, dtype=torch.float64), "feedback/low"),
        (("high",), 3.0, "feedback/high"),
        (("is_transformed",), 1, "feedback/is_transformed"),
        (("mixture", "labels"), -1, "feedback/mixture/labels"),
        (("mixture", "source_loss"), math.inf, "feedback/mixture/source_loss"),
        (("history", "steps"), [0, 1, 2, 3, 4, 99], "feedback/history/steps/5"),
        (("history", "source"), torch.zeros(3), "feedback/history/source"),
        (("history",), None, "feedback/history"),
    ],
)
def test_hostile_states_are_refused_and_nothing_changes(path, value, words):
    adapter, other = make("mixture"), make("mixture")
    run_to(adapter, 6)
    run_to(other, 3)
    state, before = copy.deepcopy(adapter.state_dict()), copy.deepcopy(other.state_dict())
    *folders, last = path
    place = state["feedback"]
    for name in folders:
        place = place[name]
    place[last] = value
    with pytest.raises(StateError, match=words):
        other.load_state_dict(state)
    assert_same(before, other.state_dict())


def test_a_state_whose_range_was_rounded_differently_is_resumed():
    state = make("mixture").state_dict()
    state["feedback"]["low"] += 1e-9
    make("mixture").load_state_dict(state)


def test_a_state_with_another_range_does_not_belong_to_the_adapter():
    state = make("mixture").state_dict()
    with pytest.raises(MismatchError, match="range of the feedback differs"):
        make("mixture", feedback_range=([-1.0, -1.0], [1.0, 1.0])).load_state_dict(state)


def test_checkpoints_contain_weights_and_predictions(tmp_path):
    path = tmp_path / "stream.safetensors"
    first = make("mixture", callbacks=[regtta.Checkpoint(path, every=100)])
    run_to(first, 6)
    first.close()
    checkpoint = regtta.Checkpoint(path)
    second = make("mixture", callbacks=[checkpoint])
    assert checkpoint.resume() == 6
    assert_same(second.state_dict()["feedback"], first.state_dict()["feedback"])


# --- export and summary --------------------------------------------------------------------------


@pytest.mark.parametrize("leading", ["source", "adapted"])
def test_a_mixture_is_exported_as_its_leading_member(leading, tmp_path, caplog):
    adapter, model = make("mixture"), small_models.mlp(2)
    source, adapted = predictions_of_both(STREAM[:6])
    for time, x in enumerate(STREAM[:6]):
        adapter.adapt(x)
        adapter.feedback(time, (source if leading == "source" else adapted)[time])
    exported = adapter.export()
    assert f"leading member, the {leading} model" in caplog.text
    expected = model if leading == "source" else adapter.model
    assert_same(dict(exported.state_dict()), dict(expected.state_dict()))
    save_model(tmp_path / "model.safetensors", exported, adapter.provenance())
    found = read_provenance(tmp_path / "model.safetensors")
    assert found.member == leading
    assert found.adapted == regtta.fingerprint(exported)
    summary = adapter.summary()
    assert "serves       the mixture" in summary
    assert f"weights from {6 * SIZE} labels" in summary
    assert f"export       the leading member, the {leading} model" in summary


def test_without_labels_the_source_model_leads_and_the_summary_says_what_is_served():
    adapter = make("mixture")
    adapter.adapt(STREAM[0])
    assert adapter.provenance().member == "source"
    assert "weights from 0 labels: source 0.500, adapted 0.500" in adapter.summary()
    assert "serves       the source model" in make("source").summary()
    assert "serves" not in make("adapted").summary()
    assert make("source").provenance().member == "adapted"


def test_a_head_found_with_the_first_batch():
    model = small_models.mlp(2)
    expected = model(STREAM[0]).detach()
    adapter = regtta.Adapter(model, regtta.Tent(), serve="source", feedback_range=(-5, 5))
    assert torch.equal(adapter.predict(STREAM[0]), expected)
    assert torch.equal(adapter.adapt(STREAM[0]).predictions, expected)
    mixture = regtta.Adapter(model, regtta.Tent(), serve="mixture", feedback_range=(-0.1, 0.1))
    assert torch.equal(mixture.predict(STREAM[0]), expected.clamp(-0.1, 0.1))
    with pytest.raises(MismatchError, match="adapt first"):
        mixture.feedback(0, LABELS[0])
