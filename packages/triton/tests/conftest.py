"""Triton runs in its interpreter: no GPU is needed. The variable must be set before triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
