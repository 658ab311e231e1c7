import json

import pytest

from regtta.cli.user_code import convert_user_errors, describe_user_error
from regtta.errors import ModelError, OptionError


def test_the_last_line_of_user_code_is_named():
    with (
        pytest.raises(ModelError, match=r"Reading failed: JSONDecodeError: .*test_user_code_errors.py, line \d+"),
        convert_user_errors(lambda: "Reading failed"),
    ):
        json.loads("{")


def test_regttas_own_errors_pass_through():
    with pytest.raises(OptionError, match="^as it was$"), convert_user_errors(lambda: "unused"):
        raise OptionError("as it was")


def test_long_messages_are_truncated_and_empty_ones_omitted():
    assert len(describe_user_error(ValueError("x" * 5000))) < 450
    assert describe_user_error(KeyError()) == "KeyError"


def test_an_interrupt_is_not_an_error():
    with pytest.raises(KeyboardInterrupt), convert_user_errors(lambda: "unused"):
        raise KeyboardInterrupt
