"""Rewrites of FX(aten): common subexpressions, dead code, constants, layouts; of FX(torch): attention and its masks.

Each is a pure function from FX(aten), pure, to the same: the input graph stays as it is, origins are merged, `fuel`
limits the number of edits, `check` verifies both ends.

Example:
    >>> from intarsia_ir.aten import parse_ir
    >>> gm = parse_ir('''// dialect: aten 2
    ... graph(%x: f32[2]) {
    ...   # model.py:1 in forward
    ...   %0: f32[2] = aten.sin.default(%x)  #1
    ...   # model.py:2 in forward
    ...   %1: f32[2] = aten.mul.Tensor(%0, 1)  #2
    ...   # model.py:3 in forward
    ...   %2: f32[2] = aten.sin.default(%x)  #3
    ...   # model.py:4 in forward
    ...   %3: f32[2] = aten.cos.default(%x)  #4
    ...   # model.py:5 in forward
    ...   %4: f32[2] = aten.add.Tensor(%1, %2)  #5
    ...   return (%4,)
    ... }
    ... origins
    ...   1 model.py
    ...     forward: 1, 2, 3, 4, 5
    ... ''')
    >>> gm = eliminate_dead_code(eliminate_common_subexpressions(fold_constants(gm)))
    >>> [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
    ['aten.sin.default', 'aten.add.Tensor']
"""

from intarsia_rewrites.drop_full_masks import drop_full_masks
from intarsia_rewrites.eliminate_common_subexpressions import eliminate_common_subexpressions
from intarsia_rewrites.eliminate_dead_code import eliminate_dead_code
from intarsia_rewrites.fold_batch_norm import fold_batch_norm
from intarsia_rewrites.fold_constants import fold_constants
from intarsia_rewrites.fold_values import StoredValues, fold_values
from intarsia_rewrites.join_linear import join_linear
from intarsia_rewrites.lay_out_masks import lay_out_masks
from intarsia_rewrites.overlap_collectives import overlap_collectives
from intarsia_rewrites.pack_convolutions import pack_convolutions
from intarsia_rewrites.pad_matmuls import pad_matmuls
from intarsia_rewrites.prefer_channels_last import prefer_channels_last
from intarsia_rewrites.recognise_attention import recognise_attention
from intarsia_rewrites.replace_patterns import Pattern, replace_patterns
from intarsia_rewrites.select_masked_writes import select_masked_writes
from intarsia_rewrites.split_convolution_bias import split_convolution_bias
from intarsia_rewrites.split_linear_bias import split_linear_bias

__version__ = "0.1.1"

# what a compiler runs, in order: on FX(torch), so that autograd sees it; then on FX(aten), pure
BEFORE_AUTOGRAD = (select_masked_writes, recognise_attention, drop_full_masks, lay_out_masks)
ON_ATEN = (fold_constants, eliminate_common_subexpressions, eliminate_dead_code)
# and after these, what depends on the machine: these take a `target`
ON_TARGET = (prefer_channels_last, split_convolution_bias, split_linear_bias, pad_matmuls)
# between these two, of a frozen model: these take names of inputs whose values stay, `known`; `fold_values` comes last
ON_FROZEN = (fold_batch_norm, join_linear)

__all__ = [
    "BEFORE_AUTOGRAD",
    "ON_ATEN",
    "ON_FROZEN",
    "ON_TARGET",
    "Pattern",
    "StoredValues",
    "drop_full_masks",
    "eliminate_common_subexpressions",
    "eliminate_dead_code",
    "fold_batch_norm",
    "fold_constants",
    "fold_values",
    "join_linear",
    "lay_out_masks",
    "overlap_collectives",
    "pack_convolutions",
    "pad_matmuls",
    "prefer_channels_last",
    "recognise_attention",
    "replace_patterns",
    "select_masked_writes",
    "split_convolution_bias",
    "split_linear_bias",
]
