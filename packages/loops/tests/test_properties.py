"""Lowering, the two dialects and the shared rewrites on random programs. Prints how often each op and rule fired."""

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_ir.aten
import intarsia_loops
from intarsia_loops.loops import interpret
from intarsia_loops.ops import NEST_KINDS, SCALAR_OPS
from intarsia_loops.program import Extern, Kernel, Nest, Program
from intarsia_loops.rewrites import as_kernel, canonical, fuse_rows, inline, localise, postorder, split_reduction
from intarsia_testkit.aten_programs import AtenProgram, aten_programs
from intarsia_testkit.differential import check_pass, same_results
from intarsia_testkit.fired import Tally

from dataclasses import replace
