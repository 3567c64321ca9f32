"""Triton runs in its interpreter: no GPU is needed. The variable must be set before triton is imported.

Also makes the helpers in this folder importable.
"""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
