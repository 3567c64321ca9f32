"""The forty programs of extensions: ours works wherever torch.compile does, and where that has no such thing."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from integration.extend.programs.record import ours, outcome, theirs

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


# forms that may not work yet, here or there
NOT_YET = {("subclass", 4)}
CASES = [(kind, number) for kind in KINDS for number in range(N_FORMS)]


@pytest.mark.peer
@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_YET], ids=lambda c: f"{c[0]} {c[1]}")
def test_ours_works(extensions, case):
    assert outcome(extensions[case].run, ours).error == ""


@pytest.mark.peer
@pytest.mark.parametrize("case", sorted(NOT_YET), ids=lambda c: f"{c[0]} {c[1]}")
def test_what_does_not_work_is_named_and_is_not_the_peers_either(extensions, case):
    error, peers = outcome(extensions[case].run, ours).error, outcome(extensions[case].peer, theirs).error
    assert not error or ("UnsupportedError: " in error and peers)
