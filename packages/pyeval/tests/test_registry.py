"""Kinds of break are registered once."""

from __future__ import annotations

import pytest

from intarsia_pyeval.breaks import REGISTRY, register


def test_a_kind_is_registered_once():
    code = "tracer.budget"
    before = dict(REGISTRY)
    row = (before[code].summary, before[code].remedy)
    register({code: row})
    with pytest.raises(ValueError, match=code):
        register({code: (row[0], "another remedy")})
    assert dict(REGISTRY) == before
