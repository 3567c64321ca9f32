"""What random programs of operators are written with: expressions over tensors, numbers and element types.

Holes of an expression: `$x` and `$y` tensors, `$d` a dimension, `$k` True or False, `$s` a number, `$t` an element
type, `<a|b|c>` one of these words.
"""

from __future__ import annotations

from types import MappingProxyType

import torch

__all__ = ["EXPRESSIONS", "NUMBERS", "SPECIAL", "TYPES"]

TYPES = (
    *(torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
NUMBERS = (
    *("0", "1", "2", "-1", "3", "0.5", "-2.5", "True", "2.0", "1e-3", "7", "-0.0", "INF", "NAN"),
    *("100", "255", "-128"),
)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, float("inf"), -float("inf"), float("nan"), 1e-30, 3e4, -2.5, 1e4)

_UNARY = """
    abs acos acosh asin asinh atan atanh bitwise_not ceil clone cos cosh digamma erf erfc exp exp2 expm1 floor frac i0
    isfinite isinf isnan lgamma log log10 log1p log2 logical_not logit nan_to_num neg positive reciprocal relu round
    rsqrt sgn sigmoid sign signbit sin sinh sqrt square tan tanh trunc
"""
_BINARY = """
    add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign div eq floor_divide
    fmax fmin fmod gcd ge gt heaviside hypot ldexp le logaddexp logaddexp2 logical_and logical_or logical_xor lt
    maximum minimum mul ne nextafter pow remainder sub true_divide xlogy
"""
_NUMBERED = """
    add clamp_max clamp_min copysign div eq floor_divide fmod ge lt mul pow remainder sub xlogy
"""
_ACTIVATIONS = """
    celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus
    softshrink softsign tanhshrink
"""


def _words(text: str) -> str:
    return "<" + "|".join(text.split()) + ">"


#: Kind of expression -> expressions, one as likely as the next.
EXPRESSIONS = MappingProxyType(
    {
        "unary": (f"torch.{_words(_UNARY)}($x)",),
        "activation": (f"F.{_words(_ACTIVATIONS)}($x)", "F.gelu($x, approximate='tanh')", "F.softshrink($x, 0.3)"),
        "binary": (f"torch.{_words(_BINARY)}($x, $y)",),
        "number": (
            *(f"torch.{_words(_NUMBERED)}($x, $s)",) * 4,
            "$s - $x",
            "$s / $x",
            "$s ** $x",
            "$s // $x",
            "torch.maximum($x, torch.tensor($s))",
            "$x & <1|3|255>",
            "$x << <0|1|3>",
        ),
        "reduction": (
            "torch.<cumsum|cumprod|softmax|log_softmax|logcumsumexp|sum|mean|prod>($x, dim=$d)",
            "torch.<cumsum|cumprod|softmax|log_softmax|sum|mean|prod>($x, dim=$d, dtype=$t)",
            "torch.<sum|mean|prod|max|min>($x)",
            "torch.<any|all|amax|amin|argmax|argmin|logsumexp|norm|nansum>($x, dim=$d, keepdim=$k)",
            "torch.<var|std>($x, dim=$d, correction=<0|1>, keepdim=$k)",
            "torch.<max|min|cummax|median>($x, dim=$d)[<0|1>]",
            "torch.sort($x, dim=$d, stable=True)[<0|1>]",
            "torch.std_mean($x, dim=$d)[<0|1>]",
            "torch.aminmax($x, dim=$d)[<0|1>]",
            "torch.count_nonzero($x)",
            "torch.linalg.vector_norm($x, <0|1|2|3|INF|-INF>, dim=$d)",
            "torch.var_mean($x, dim=tuple(range($x.dim())))[<0|1>]",
        ),
        "view": (
            "$x.reshape(-1)",
            "$x.<mT|T>",
            "$x.transpose($d, <0|1|-1>)",
            "$x.permute(*reversed(range($x.dim())))",
            "$x.unsqueeze($d)",
            "$x.squeeze()",
            "$x.flip($d)",
            "$x.narrow($d, 1, $x.shape[$d] - 1)",
            "$x[1:]",
            "$x[..., ::2]",
            "$x.unsqueeze(0).expand(3, *$x.shape)",
            "$x.unbind($d)[-1]",
            "$x.<chunk|split>(2, $d)[<0|-1>]",
            "$x.roll(<1|-1|3>, $d)",
            "$x.select($d, -1)",
            "$x.flatten(<0|1>)",
            "$x.repeat(2, *([1] * ($x.dim() - 1)))",
            "torch.diag_embed($x)",
            "$x.<tril|triu>(<-1|0|1>)",
            "$x.movedim(0, -1)",
            "$x.to($t)",
            "$x.unfold($d, 2, <1|2>)",
            "$x.repeat_interleave(2, dim=$d)",
            "torch.rot90($x)",
            "$x.diagonal()",
            "$x.tile(2)",
        ),
        "mixed": (
            "torch.where($x > 0, $x, $y)",
            "torch.where($x > 0, $s, $x)",
            "torch.clamp($x, <-1|0|-0.5>, <1|2.5|0>)",
            "torch.clamp($x, max=$y)",
            "torch.<cat|stack>([$x, $y], $d)",
            "torch.lerp($x, $y, 0.3)",
            "torch.addcmul($x, $y, $x, value=2)",
            "torch.addcdiv($x, $y, $x)",
            "torch.add($x, $y, alpha=<2|0.5|-1>)",
            "$x.masked_fill($x > 0, $s)",
            "torch.full_like($x, $s)",
            "$x.index_select($d, torch.tensor([0, -1 % $x.shape[$d], 0]))",
            "$x.index_put((torch.tensor([0, 0]),), $x[:1], accumulate=$k)",
            "$x.index_add(0, torch.tensor([0, 0]), $x[:2])",
            "$x.gather($d, ($x > 0).long())",
            "$x.scatter_add($d, ($x > 0).long(), $x)",
            "$x.scatter($d, ($x > 0).long()[..., :1], <2|5>)",
            "torch.take_along_dim($x, $x.argsort($d, stable=True), $d)",
            "torch.isin($x, torch.tensor([0, 1]))",
            "torch.bucketize($x, torch.tensor([-1.0, 0.0, 1.0]))",
            "F.pad($x, (<1|0|-1>, 2), value=<0|1|-1>)",
            "F.one_hot($x.long().abs() % 4, 4)",
            "F.embedding($x.long().abs() % 3, torch.arange(6.0).view(3, 2))",
            "F.interpolate($x.float(), scale_factor=1.5, mode='nearest')",
            "F.<avg_pool1d|max_pool1d>($x, 2, ceil_mode=$k)",
            "F.layer_norm($x, $x.shape[-1:])",
            "F.rms_norm($x, $x.shape[-1:])",
            "F.batch_norm($x, None, None, training=True)",
            "F.group_norm($x, 1)",
            "F.normalize($x, dim=$d)",
            "F.glu($x, $d)",
            "F.softmin($x, $d)",
            "F.<mse_loss|smooth_l1_loss|huber_loss|kl_div>($x, $y, reduction='<none|mean|sum>')",
            "F.cross_entropy($x, torch.zeros($x.shape[:1], dtype=torch.long))",
            "F.binary_cross_entropy_with_logits($x, torch.ones_like($x))",
            "F.cosine_similarity($x, $y, dim=-1)",
            "F.dropout($x, 0.0)",
            "F.linear($x, torch.ones(3, $x.shape[-1]).to($x.dtype))",
            "F.conv1d($x[None, None].flatten(2), torch.ones(2, 1, 1).to($x.dtype))",
            "$x @ $y.mT",
            "torch.addmm($x, $x, $x.mT @ $x)",
            "torch.einsum('...i,...i->...', $x, $x)",
            "torch.cross($x[..., :3], $x[..., :3].flip(-1), dim=-1)",
            "torch.outer($x.flatten()[:5], $y.flatten()[:5])",
            "torch.kron($x, torch.ones(2).to($x.dtype))",
            "torch.diff($x, dim=$d)",
            "torch.trace($x)",
            "torch.renorm($x, 2, 0, 1.0)",
            "torch.logit($x, 0.1)",
            "torch.topk($x, 1, $d)[0]",
            "torch.arange($x.numel()).reshape($x.shape) + $x",
            "$x.sum_to_size(($x.shape[0],) + (1,) * ($x.dim() - 1))",
            "$x.clone().<add_|mul_|sub_|div_|copy_|bitwise_and_|fmod_|clamp_min_>($y)",
            "written($x)",
        ),
    }
)
