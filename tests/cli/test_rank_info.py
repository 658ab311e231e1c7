import pytest

from regtta.cli.rank_info import RankInfo, get_rank_info, is_first_process


def environment(rank="1", size="4", local="1", **more):
    return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, **more}


def test_the_rank_is_read_from_the_environment():
    assert get_rank_info(environment(rank="5", size="8")) == RankInfo(rank=5, size=8, local_rank=1)
    assert not is_first_process(environment())
    assert is_first_process(environment(rank="0"))


@pytest.mark.parametrize(
    "variables",
    [{}, {"WORLD_SIZE": "4"}, {"RANK": "0", "WORLD_SIZE": "4"}, environment(size="1", rank="0"), environment(rank="")],
)
def test_no_rank_without_torchrun_or_with_one_process(variables):
    assert get_rank_info(variables) is None
    assert is_first_process(variables)
