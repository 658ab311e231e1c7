import json

import pytest

from regtta.cli.user_code import convert_user_errors, describe_user_error
from regtta.errors import ModelError, OptionError


def test_the_users_own_line_is_named_and_not_a_librarys():
    with (
        pytest.raises(ModelError, match=r"Reading failed: JSONDecodeError: .*test_user_code_errors.py, line \d+"),
        convert_user_errors(lambda: "Reading failed"),
    ):
        json.loads("{")


def test_regttas_own_errors_pass_through():
    with pytest.raises(OptionError, match="^as it was$"), convert_user_errors(lambda: "never told"):
        raise OptionError("as it was")


def test_a_long_message_is_cut_and_an_empty_one_left_out():
    assert len(describe_user_error(ValueError("x" * 5000))) < 450
    assert describe_user_error(KeyError()) == "KeyError"


def test_an_interrupt_is_not_an_error():
    with pytest.raises(KeyboardInterrupt), convert_user_errors(lambda: "never told"):
        raise KeyboardInterrupt
