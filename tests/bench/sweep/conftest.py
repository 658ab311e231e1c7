import pytest

from helpers.sweeps import make_runner_config


@pytest.fixture
def california_config(tmp_path):
    """Configuration of a tiny sweep."""
    return make_runner_config(tmp_path)
