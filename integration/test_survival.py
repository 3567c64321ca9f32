"""Short forms of `python -m integration.survival`: a cache under attack, killed writers, crowds, memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("cache --entries 26", "26 refused; 3 left alone, 3 read; 0 wrong"),
        ("malice --entries 50", "0 of 50 malicious entries ran"),
        ("killed --points 24", "24 of 24 killed"),
        ("processes --processes 4 --functions 4", "0 failures, 4 units"),
        ("threads --threads 12 --functions 4 --seconds 4", "0 wrong, 0 hanging"),
        ("peak", "times them above eager"),
        ("memory --cycles 40 --first 20", "40 cycles"),
    ],
    ids=lambda words: words.split()[0],
)
def test_it_survives(words, told, tmp_path):
    # apart: they change the user, fork, and are killed
    done = subprocess.run(
        [sys.executable, "-m", "integration.survival", *words.split()],
        env={**os.environ, "OMP_NUM_THREADS": "1", "INTARSIA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0 and told in done.stdout, done.stdout + done.stderr[-2000:]
