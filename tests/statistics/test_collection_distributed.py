"""Distributed ``collect``: all processes return the statistics of the whole, and errors reach all of them."""

import os
import signal

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch import nn

import regtta
from helpers import small_models
from helpers.process_groups import run_in_processes
from regtta.errors import MismatchError, ProcessError, RegttaError, StatisticsError
from regtta.models.features import Forward
from regtta.statistics.collectors import StatisticsCollector

RESTORATION = regtta.FeatureRestoration(bins=4, temperature=0.1)


def _batches(count: int, offset: float = 0.0) -> list[torch.Tensor]:
    """Return batches of 3, 4, 5, ... rows, so that all shards differ."""
    sizes = [3 + index for index in range(count)]
    return list((small_models.table(sum(sizes)).double() + offset).split(sizes))


def _shard(group: dist.ProcessGroup, batches: list[torch.Tensor]) -> list[torch.Tensor]:
    return batches[group.rank() :: group.size()]


def _collect(group: dist.ProcessGroup, batches: list[torch.Tensor], methods=()) -> regtta.SourceStatistics:
    model = small_models.mlp(outputs=2).double()
    return regtta.collect(model, _shard(group, batches), methods=methods, columns=list("abcde"), process_group=group)


# With 3 batches the last of 4 processes has none.
@pytest.mark.parametrize(("size", "batches"), [(2, 7), (3, 7), (4, 3)])
def test_all_processes_return_the_statistics_of_a_single_process(tmp_path, size, batches):
    data = _batches(batches)
    alone = regtta.collect(small_models.mlp(outputs=2).double(), data, methods=[RESTORATION], columns=list("abcde"))
    found = run_in_processes(size, _collect, tmp_path, data, [RESTORATION])
    for source in found:
        assert (source.count, source.head, source.fingerprint) == (alone.count, alone.head, alone.fingerprint)
        torch.testing.assert_close(source.mean, alone.mean, rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(source.variances, alone.variances, rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(source.covariance(), alone.covariance(), rtol=1e-10, atol=1e-13)
        assert (source.columns, source.input_count) == (alone.columns, alone.input_count)
        torch.testing.assert_close(source.input_mean, alone.input_mean, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(source.input_variance, alone.input_variance, rtol=1e-12, atol=1e-14)
        _assert_same(source, found[0])
        for end in ("low", "high", "temperature"):
            assert torch.equal(_extra(source, end), _extra(alone, end))
        torch.testing.assert_close(_extra(source, "probabilities"), _extra(alone, "probabilities"), rtol=1e-12, atol=0)


def _extra(source: regtta.SourceStatistics, name: str) -> torch.Tensor:
    return source.extras[f"feature_restoration/{name}"]


def _assert_same(one: regtta.SourceStatistics, other: regtta.SourceStatistics) -> None:
    for name in ("mean", "variances", "basis", "feature_variances", "input_mean", "input_variance"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert one.extras.keys() == other.extras.keys()
    assert all(torch.equal(one.extras[name], other.extras[name]) for name in one.extras)


def test_features_far_from_zero_lose_no_precision(tmp_path):
    data = _batches(40, offset=1e6)
    expected = np.cov(torch.cat(data).numpy().T)
    for source in run_in_processes(3, _same_linear, tmp_path, data):
        np.testing.assert_allclose(source.covariance(), expected, rtol=1e-10, atol=1e-10)


def _same_linear(group: dist.ProcessGroup, batches: list[torch.Tensor]) -> regtta.SourceStatistics:
    torch.manual_seed(0)
    return regtta.collect(nn.Sequential(nn.Linear(5, 1)).double(), _shard(group, batches), process_group=group)


def _no_data(group: dist.ProcessGroup) -> list[str]:
    messages = []
    for methods in ((), (RESTORATION,)):
        try:
            regtta.collect(small_models.mlp(), [], methods=methods, process_group=group)
        except StatisticsError as error:
            messages.append(str(error))
    return messages


def test_no_data_in_any_process_raises_the_usual_error_in_all(tmp_path):
    for messages in run_in_processes(2, _no_data, tmp_path):
        assert len(messages) == 2
        assert all(line.startswith("The source loader gave no samples") for line in messages)


class _Unmerged(StatisticsCollector):
    def update(self, forward: Forward, pass_index: int) -> None:
        raise AssertionError("no batch is run before the error is known")

    def result(self) -> dict[str, torch.Tensor]:
        return {}


class _MethodWithUnmergedCollector:
    def statistics_collectors(self) -> dict[str, StatisticsCollector]:
        return {"unmerged": _Unmerged()}


def _raises(group: dist.ProcessGroup, kind: type[Exception], *args, **kwargs) -> str:
    try:
        regtta.collect(*args, process_group=group, **kwargs)
    except kind as error:
        return str(error)
    return "nothing was raised"


def _mismatched(group: dist.ProcessGroup) -> dict[str, str]:
    last, inputs = group.rank() == 2, small_models.table(12).split(4)
    bins = regtta.FeatureRestoration(bins=5 if last else 4)
    return {
        "model": _raises(group, MismatchError, small_models.mlp(seed=int(last)), inputs),
        "head": _raises(group, MismatchError, small_models.mlp(), inputs, head="3" if last else "6"),
        "methods": _raises(group, MismatchError, small_models.mlp(), inputs, methods=[bins]),
        "columns": _raises(
            group, MismatchError, small_models.mlp(), inputs, columns=list("edcba" if last else "abcde")
        ),
        "unmerged": _raises(group, ProcessError, small_models.mlp(), inputs, methods=[_MethodWithUnmergedCollector()]),
        "afterwards": str(regtta.collect(small_models.mlp(), inputs, process_group=group).count),
    }


def test_mismatched_processes_all_raise(tmp_path):
    for messages in run_in_processes(3, _mismatched, tmp_path):
        assert (
            messages["model"] == "Process 2 has a different model from process 0. Pass the same model to all processes."
        )
        assert messages["head"].startswith("Process 2 has a different head")
        assert messages["methods"].startswith("Process 2 has a different list of methods to collect for")
        assert messages["columns"].startswith("Process 2 has a different list of columns")
        assert "_Unmerged cannot be collected by several processes" in messages["unmerged"]
        assert messages["afterwards"] == "36"


def _failing_loader():
    yield small_models.table(4)
    raise OSError("the disk\nis gone")


def _one_fails(group: dist.ProcessGroup) -> dict[str, str]:
    mine, inputs = group.rank() == 1, list(small_models.table(12).split(4))
    spoilt = [inputs[0], inputs[1] * torch.nan]
    return {
        "features": _raises(group, RegttaError, small_models.mlp(), spoilt if mine else inputs),
        "loader": _raises(group, Exception, small_models.mlp(), _failing_loader() if mine else inputs),
        "model": _raises(group, RegttaError, (lambda x: x) if mine else small_models.mlp(), inputs),
        "passes": _raises(
            group,
            RegttaError,
            small_models.mlp(),
            iter(inputs) if mine else inputs,
            methods=[regtta.FeatureRestoration()],
        ),
        "afterwards": str(regtta.collect(small_models.mlp(), inputs, process_group=group).count),
    }


def test_an_error_in_one_process_is_raised_in_all(tmp_path):
    expected = {
        "features": "The model gives non-finite features on source batch 1. ",
        "loader": "the disk\nis gone",
        "model": "Expected a torch.nn.Module, found function.",
        "passes": "feature_restoration needs 2 passes over the source",
    }
    others, failed, more = run_in_processes(3, _one_fails, tmp_path)
    for what, text in expected.items():
        assert failed[what].startswith(text)
        named = "OSError: the disk is gone" if what == "loader" else text
        for message in (others[what], more[what]):
            assert message.startswith(f"The processes work together, and process 1 failed: {named}")
    assert {messages["afterwards"] for messages in (others, failed, more)} == {"36"}


def _one_is_killed(group: dist.ProcessGroup) -> str:
    def inputs():
        yield small_models.table(4)
        if group.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        yield small_models.table(4)

    return _raises(group, ProcessError, small_models.mlp(), inputs())


def test_a_killed_process_ends_the_others(tmp_path):
    first, dead, last = run_in_processes(3, _one_is_killed, tmp_path)
    assert dead is None
    for message in (first, last):
        assert message.startswith("Another process of the group has ended or does not answer")
