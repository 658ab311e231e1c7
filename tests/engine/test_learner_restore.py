"""Averaging of the trained parameters towards the source after every step: ``restore``."""

import pytest
import torch

import regtta
from helpers import small_models
from helpers.process_groups import run_in_processes
from helpers.states import assert_same
from regtta.errors import OptionError
from regtta.persistence import to_dict, to_dict_v0_1_0
from regtta_bench.sweep.run_keys import describe_method


@pytest.fixture(scope="module")
def model():
    return small_models.mlp().double()


@pytest.fixture(scope="module")
def source(model):
    return regtta.collect(model, small_models.table(200).double().split(50))


STREAM = small_models.table(60, shift=0.8, scale=1.4, seed=3).double().split(12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", torch.optim.SGD], ids=str)
def test_one_step_is_the_average_of_the_plain_step_and_the_source(model, source, optimizer):
    plain, restored = (
        regtta.Adapter(model, regtta.SSA(k=4, lr=0.05, optimizer=optimizer, restore=share), source)
        for share in (0.0, 0.25)
    )
    for adapter in (plain, restored):
        adapter.adapt(STREAM[0])
    before, there, here = (dict(m.named_parameters()) for m in (model, plain.export(), restored.export()))
    for name, value in before.items():
        expected = 0.75 * there[name] + 0.25 * value
        torch.testing.assert_close(here[name], expected, rtol=1e-12, atol=1e-14)
    assert not torch.equal(here["1.weight"], before["1.weight"])
    # Running statistics are not averaged.
    for name, value in plain.export().named_buffers():
        assert torch.equal(restored.export().get_buffer(name), value)


def test_several_steps_against_a_loop_by_hand(model, source):
    """Gradient descent by autograd on the same loss, followed by the average."""
    adapter = regtta.Adapter(model, regtta.SSA(k=4, lr=0.01, optimizer="sgd", restore=0.1, batch_norm="source"), source)
    copy = small_models.mlp().double()
    parameters = [copy[i].get_parameter(n) for i in (1, 4) for n in ("weight", "bias")]
    start = [p.detach().clone() for p in parameters]
    rule = regtta.SSA(k=4).start(regtta.methods.MethodContext(model, model[6], source))
    for x in STREAM:
        adapter.adapt(x)
        features = copy[:6](x)
        loss = rule.update(regtta.methods.Batch(x, features, features, None, None))
        with torch.no_grad():
            for p, began, slope in zip(parameters, start, torch.autograd.grad(loss, parameters), strict=True):
                p.copy_(0.9 * (p - 0.01 * slope) + 0.1 * began)
    torch.testing.assert_close(adapter.predict(STREAM[0]), copy(STREAM[0]), rtol=1e-9, atol=1e-9)


def test_the_displacement_of_a_stationary_stream_stays_bounded(model, source):
    stream = small_models.table(12 * 150, shift=0.8, scale=1.4, seed=3).double().split(12)
    plain, restored = (
        [step.diagnostics.displacement for step in regtta.Adapter(model, method, source).run(stream)]
        for method in (regtta.SSA(k=4, lr=0.01), regtta.SSA(k=4, lr=0.01, restore=0.1))
    )
    assert max(restored) < 0.5 * plain[-1]


def test_a_rollback_undoes_the_average_exactly(model, source):
    class Refuse(regtta.guards.Guard):
        def after_step(self, stats):
            return "refused"

    adapter = regtta.Adapter(model, regtta.SSA(k=4, restore=0.3), source, guards=[Refuse()])
    for x in STREAM:
        assert adapter.adapt(x).reason == "refused"
    for name, value in model.state_dict().items():
        assert torch.equal(adapter.export().state_dict()[name], value), name


def test_a_resumed_stream_is_exact(model, source):
    method = regtta.SSA(k=4, lr=0.02, restore=0.2)
    whole, first, second = (regtta.Adapter(model, method, source) for _ in range(3))
    list(whole.run(STREAM))
    list(first.run(STREAM[:2]))
    second.load_state_dict(first.state_dict())
    list(second.run(STREAM[2:]))
    assert_same(second.state_dict()["learner"], whole.state_dict()["learner"])


def _adapt(group):
    model = small_models.mlp().double()
    source = regtta.collect(model, small_models.table(200).double().split(50))
    adapter = regtta.Adapter(model, regtta.SSA(k=4, lr=0.02, restore=0.2), source, process_group=group)
    list(adapter.run(x[group.rank() :: 2] for x in STREAM))
    return adapter.export().state_dict()


def test_several_processes_match_a_single_one(tmp_path, model, source):
    single = regtta.Adapter(model, regtta.SSA(k=4, lr=0.02, restore=0.2), source)
    list(single.run(torch.cat([x[::2], x[1::2]]) for x in STREAM))
    for found in run_in_processes(2, _adapt, tmp_path):
        for name, value in single.export().state_dict().items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_captured_steps_are_averaged_too(source):
    model = small_models.mlp().double().cuda()
    results = []
    for execution in (regtta.Execution(), regtta.Execution(capture=True)):
        adapter = regtta.Adapter(model, regtta.SSA(k=4, lr=0.02, restore=0.2), source, execution=execution)
        list(adapter.run(x.cuda() for x in STREAM))
        results.append(adapter.predict(STREAM[0].cuda()))
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6)


def test_descriptions_without_averaging_are_those_of_before_it_existed():
    """States and keys of runs from before the option must stay valid."""
    for describe in (to_dict, to_dict_v0_1_0, describe_method):
        assert "restore" not in describe(regtta.SSA())
        assert describe(regtta.SSA(restore=0.1))["restore"] == 0.1
    summed = regtta.create_method("ssa+tent", restore=0.1)
    assert summed.restore == 0.1
    assert "restore" not in to_dict(regtta.create_method("ssa+tent"))


@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5])
def test_invalid_values(value):
    with pytest.raises(OptionError, match="restore to be a number"):
        regtta.SSA(restore=value)
