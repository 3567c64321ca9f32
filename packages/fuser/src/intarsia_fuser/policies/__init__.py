"""The shipped policies, one file each. A policy reads a `FusionGraph` and yields decisions; see `plan.FusionPolicy`."""

from __future__ import annotations

from intarsia_fuser.policies.greedy import Greedy
from intarsia_fuser.policies.inductor_like import InductorLike
from intarsia_fuser.policies.no_fusion import NoFusion

__all__ = ["Greedy", "InductorLike", "NoFusion"]
