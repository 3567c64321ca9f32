"""Warnings point to the user's program, past generated code."""

import pytest

from intarsia_ir.where import warn_user


def test_generated_code_is_not_the_users():
    space = {"warn_user": warn_user}
    exec(compile("def generated():\n    warn_user('slow', RuntimeWarning)", "<intarsia epilogue>", "exec"), space)
    with pytest.warns(RuntimeWarning, match="slow") as caught:
        space["generated"]()
    assert caught[0].filename == __file__
