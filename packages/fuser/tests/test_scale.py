"""Large programs: the time per nest is printed (`-s`), only its growth is judged."""

from __future__ import annotations

import time

import pytest
from fuser_programs import chain, wide

from intarsia_fuser import Greedy, InductorLike, apply_program, plan


def seconds(program, policy):
    """Seconds of this thread's own work: what else runs on the machine doesn't count."""
    start = time.thread_time()
    made = plan(program, policy=policy, check=False)
    planned = time.thread_time()
    apply_program(program, made)
    applied = time.thread_time()
    print(
        f"\n{made.policy}: {made.before.kernels} -> {made.after.kernels} kernels, plan {planned - start:.2f} s, "
        f"apply {applied - planned:.2f} s"
    )
    return applied - start


@pytest.mark.parametrize(("policy", "n"), [(Greedy(), 500), (InductorLike(), 100)], ids=lambda p: getattr(p, "name", p))
@pytest.mark.parametrize("make", [lambda n: chain(n, 16), lambda n: wide(n, 16)], ids=["chain", "wide"])
def test_time_grows_with_the_size_not_its_square(make, policy, n):
    small, large = seconds(make(n), policy), min(seconds(make(10 * n), policy) for _ in range(2))
    # ten times the nests: a quadratic pass would take a hundred times as long; this leaves room for shared caches
    assert large < 40 * small
