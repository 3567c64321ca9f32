"""The shipped policies, one file each; what a policy is, `protocol.FusionPolicy` says."""

from __future__ import annotations

from intarsia_fuser.policies.greedy import Greedy
from intarsia_fuser.policies.inductor_like import InductorLike
from intarsia_fuser.policies.no_fusion import NoFusion
from intarsia_fuser.policies.protocol import FusionPolicy
from intarsia_fuser.policies.replay import Replay

__all__ = ["FusionPolicy", "Greedy", "InductorLike", "NoFusion", "Replay"]
