"""The forty programs of extensions: ours works wherever torch.compile does, and where that has no such thing."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from integration.extend.programs.record import ours, outcome

pytest.importorskip("triton")
pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]
KINDS = ("operator", "kernel", "backend", "pass", "device", "dialect", "quantizer", "subclass")
N_FORMS = 5


@pytest.fixture(scope="module")
def extensions():
    """All programs; kernels are interpreted from their definition on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        for name in ("integration.extend.kernels", "integration.extend.programs.all"):
            sys.modules.pop(name, None)
        from integration.extend.programs.all import EXTENSIONS

        assert Counter(e.kind for e in EXTENSIONS) == dict.fromkeys(KINDS, N_FORMS)
        assert len({(e.kind, e.name) for e in EXTENSIONS}) == len(EXTENSIONS)
        yield {(e.kind, number % N_FORMS): e for number, e in enumerate(EXTENSIONS)}


@pytest.mark.peer
@pytest.mark.parametrize("number", range(N_FORMS))
@pytest.mark.parametrize("kind", KINDS)
def test_ours_works(extensions, kind, number):
    assert outcome(extensions[kind, number].run, ours).error == ""
