"""When the dialect is verified, and which values carry bits."""

import pytest
import torch

from intarsia_functionalizer import functionalize, to_aten
from intarsia_functionalizer.outputs import _has_bits
from intarsia_ir import aten as aten_dialect


@pytest.mark.parametrize(("check", "times"), [(True, 2), (False, 0)])
def test_entry_and_exit_are_verified_where_it_is_asked_for(
    check: bool, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, seen, real = to_aten(lambda x: x.view(-1).add_(1), (torch.zeros(2, 3),)), [], aten_dialect.verify
    monkeypatch.setattr(aten_dialect, "verify", lambda gm, **how: (seen.append(how), real(gm, **how))[1])
    functionalize(recorded, check=check)
    assert len(seen) == times


def test_bits_of_conjugates_and_negatives() -> None:
    z = torch.zeros(2, dtype=torch.complex64)
    assert [_has_bits(v) for v in (z, z.conj(), torch._neg_view(z), torch._neg_view(z.conj()))] == [
        False,
        True,
        True,
        True,
    ]
