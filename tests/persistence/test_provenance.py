import io
import json
from dataclasses import dataclass, fields

import pytest
import torch

import regtta
from helpers import small_models
from helpers.adapters import make_adapted_adapter
from regtta.errors import OptionError, RegttaError
from regtta.persistence.provenance import Provenance


@dataclass(frozen=True, kw_only=True)
class UserMethod(regtta.SSA):
    """User-defined method with an option that JSON cannot represent as a number."""

    limit: float = float("inf")


@pytest.mark.parametrize(
    "method",
    [
        regtta.SSA(k=4),
        regtta.BNAdapt(),
        regtta.create_method("tent+0.5*ssa"),
        regtta.SSA(k=4, optimizer=torch.optim.SGD),
        UserMethod(k=4),
    ],
    ids=lambda method: method.name,
)
def test_any_method_round_trips_through_json(method):
    model = small_models.mlp(outputs=2)
    found = regtta.Adapter(model, method, regtta.collect(model, small_models.table(100).split(50))).provenance()
    again = Provenance.from_json(found.to_json())
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
        ({"member": "mixture"}, '\'member\' in the provenance to be "adapted" or "source"'),
    ],
)
def test_invalid_values_are_named(changes, words):
    with pytest.raises(OptionError, match=words):
        Provenance.from_dict(make_adapted_adapter().provenance().to_dict() | changes)


def test_every_field_but_the_later_member_is_required():
    whole = make_adapted_adapter().provenance().to_dict()
    assert whole.keys() == {item.name for item in fields(Provenance)}
    earlier = {key: value for key, value in whole.items() if key != "member"}
    assert Provenance.from_dict(earlier).member == "adapted"
    for name in earlier:
        with pytest.raises(OptionError, match=f"lacks .*{name}"):
            Provenance.from_dict({key: value for key, value in whole.items() if key != name})


def test_a_resumed_stream_keeps_its_start_time_and_counts():
    adapter = make_adapted_adapter()
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
    with pytest.raises(RegttaError, match="has not found the head of the model yet"):
        regtta.Adapter(small_models.mlp(), regtta.create_method("tent"), head=None).provenance()
