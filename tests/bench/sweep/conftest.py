import pytest

from helpers.sweeps import tools_in


@pytest.fixture
def california_tools(tmp_path):
    """What a tiny sweep works with."""
    return tools_in(tmp_path)
