"""The shipped policies, one file each; what a policy is, `protocol.FusionPolicy` says."""

from __future__ import annotations

from intarsia_fuser.policies.at_random import AtRandom
from intarsia_fuser.policies.exhaustive import Exhaustive
from intarsia_fuser.policies.greedy import Greedy
from intarsia_fuser.policies.inductor_like import InductorLike
from intarsia_fuser.policies.no_fusion import NoFusion
from intarsia_fuser.policies.priority import Priority
from intarsia_fuser.policies.protocol import FusionPolicy, weighs_times
from intarsia_fuser.policies.replay import Replay
from intarsia_fuser.policies.search import Search
from intarsia_fuser.policies.steps import Step, steps

__all__ = [
    "AtRandom",
    "Exhaustive",
    "FusionPolicy",
    "Greedy",
    "InductorLike",
    "NoFusion",
    "Priority",
    "Replay",
    "Search",
    "Step",
    "steps",
    "weighs_times",
]
