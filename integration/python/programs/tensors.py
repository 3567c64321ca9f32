"""torch.dtype, device, Size, finfo; in-place ops; .item() and .tolist(), open or as breaks; is_compiling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn, randn

from integration.python.program import made, program

DTYPES = {"half": torch.float16, "single": torch.float32, "double": torch.float64}


@program("torch.dtype", lambda: (randn(3), "double"))
def dtype_by_name(x, name):
    y = x.to(DTYPES[name])
    return y * 2, y.dtype, y.dtype.is_floating_point, y.dtype == x.dtype, str(y.dtype)


@program("torch.dtype", lambda: (randn(3, 4).half(), torch.float32))
def upcast_and_back(x, dtype):
    before = x.dtype
    y = x.to(dtype)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
    return y.to(before), torch.promote_types(before, torch.int64), torch.get_default_dtype()


@program("torch.dtype", lambda: (torch.arange(6), randn(6)))
def dtype_of_a_result(n, x):
    y = n + x if torch.is_floating_point(x) else n
    return y, torch.result_type(n, x), n.dtype in (torch.int64, torch.int32), torch.zeros(2, dtype=n.dtype)


@program("torch.device", lambda: (randn(3),))
def new_tensors_on_the_same_device(x):
    mask = torch.ones(3, device=x.device, dtype=torch.bool)
    return x.masked_fill(~mask, 0.0), x.device, x.device.type == "cpu", mask.to(x.device) is mask


@program("torch.device", lambda: (randn(3), torch.device("cpu")))
def device_as_an_argument(x, device):
    with torch.device(device):
        zeros = torch.zeros(3)
    return x.to(device) + zeros, torch.device("cpu", 0), device == x.device, str(device)


@program("torch.Size", lambda: (randn(2, 3), torch.Size([3, 2])))
def size_as_an_argument(x, size):
    return x.reshape(size) + torch.zeros(size), len(size), size == (3, 2), list(size), x.shape[-1] * size[0]


@program("torch.Size", lambda: (randn(2, 3), randn(3)))
def broadcast_by_hand(x, y):
    shape = torch.broadcast_shapes(x.shape, y.shape)
    return x.expand(shape) * y.expand(*shape), tuple(shape), isinstance(shape, tuple)


@program("torch.finfo", lambda: (randn(2, 4), torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])))
def additive_mask(scores, keep):
    bias = (1.0 - keep.to(scores.dtype)) * torch.finfo(scores.dtype).min
    return (scores + bias).softmax(-1)


@program("torch.finfo", lambda: (randn(4),))
def limits_of_types(x):
    info = torch.finfo(x.dtype)
    return (x + info.eps).clamp(info.min, info.max), info.bits, torch.iinfo(torch.int8).max, info.tiny < info.eps


@program("in-place ops", lambda: (randn(3), randn(3)))
def update_an_argument(x, y):
    x.mul_(2).add_(y, alpha=0.5)
    x[0] = 7.0
    x[1:] += 1
    return x.sum()


@program("in-place ops", lambda: (randn(4, 3),))
def write_through_a_view(x):
    row = x[1]
    row.zero_()
    column = x.t()[2]
    column.fill_(3)
    return row, x.view(-1)[::2], x


@program("in-place ops", lambda: (torch.zeros(2, 6, 4), randn(2, 1, 4), 2))
def write_into_a_cache(cache, new, position):
    cache[:, position : position + 1] = new
    cache.narrow(1, 5, 1).copy_(new)
    return cache[:, : position + 1].clone()


@program("in-place ops", lambda: (torch.zeros(4, 3), torch.tensor([0, 2, 2]), randn(3, 3)))
def scatter_and_index(x, index, source):
    x.index_add_(0, index, source)
    x.masked_fill_(x > 1, 1.0)
    x.clamp_(min=-1)
    x[index] = 0.5
    return x


@program("in-place ops", lambda: (randn(3), torch.empty(3)))
def out_arguments(x, out):
    torch.add(x, 1, out=out)
    y = torch.empty_like(x)
    torch.exp(out, out=y)
    return y


@program(".item()", lambda: (torch.tensor([3, 1, 2]),))
def size_from_a_tensor(lengths):
    longest = int(lengths.max())
    return torch.arange(longest) < lengths[:, None]


@program(".item()", lambda: (torch.rand(3),))
def check_the_loss(x):
    loss = (x - x).mean()
    value = float(loss)
    if value != value:
        raise ValueError("nan")
    return x + value


@program(".tolist()", lambda: (torch.tensor([2, 1]), randn(3)))
def split_by_a_list(sizes, x):
    return [part * 2 for part in torch.split(x, sizes.tolist())]


@program(".tolist()", lambda: (torch.tensor([1, 0]),), graphs=2, breaks=("tracer.tensor_value",))
def words_of_ids(ids):
    shifted = ids + 1
    names = ["a", "b", "c"]
    words = [names[i] for i in shifted.tolist()]
    return shifted * len(words), " ".join(words)


@program("is_compiling", lambda: (randn(3),))
def path_for_the_compiler(x):
    # both ways compute the same: only the assertion is left out
    if not torch.compiler.is_compiling():
        assert bool((x == x).all())
    return x * 2


def _is_compiled():
    return torch.compiler.is_compiling() or torch.compiler.is_dynamo_compiling()


@program("is_compiling", lambda: (randn(3),))
def helper_asks_whether_it_is_compiled(x):
    path = F.softplus if _is_compiled() else (lambda v: v.exp().add(1).log())
    return path(x)


@program("is_compiling", lambda: (randn(3),))
def not_scripting_nor_tracing(x):
    if torch.jit.is_scripting() or torch.jit.is_tracing():
        return x
    return x + 1


@program(".item()", lambda: (torch.rand(4) + 1,), calls=4)
def scale_by_an_item(x):
    y = x * 2
    scale = y.sum().item()
    return y * scale


@program("torch.Size", lambda: (randn(2, 3, 4),))
def split_heads(x):
    batch, length, width = x.size()
    y = x.view(batch, length, 2, width // 2).transpose(1, 2)
    return y.reshape(x.shape), y.shape, x.shape[:-1] + (2, -1), x.shape.numel()


@program("in-place ops", lambda: (randn(3),))
def tags_on_a_result(x):
    y = x * 2
    y.scale, y.names_of_steps = 2, ["double"]
    kept = y.add_(1)
    kept.names_of_steps.append("add")
    del y.scale
    return y, hasattr(kept, "scale"), kept.names_of_steps, hasattr(y.clone(), "names_of_steps")


@program("in-place ops", lambda: (randn(3), randn(3)))
def data_is_replaced(x, y):
    view = x[:2]
    x.data = y
    x.add_(1)
    view.mul_(2)
    return x, y, view, x is y


@program("in-place ops", lambda: (randn(2, 3), randn(3)))
def data_of_another_shape(x, y):
    x.add_(1)
    x.data = torch.cat([y, y * 2]).double()
    return x.sum(), x.shape, x.dtype, len(x)


@program("in-place ops", lambda: (randn(3), randn(3)))
def data_is_exchanged(x, y):
    x.data, y.data = y.data, x.data
    return x - y


@made("in-place ops", lambda: (randn(3),))
def average_of_weights():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.average = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))

        @torch.no_grad()
        def forward(self, x):
            self.weight.data -= 0.1 * x
            self.average.data = self.average.data * 0.9 + self.weight.data * 0.1
            return self.average * x, self.average.requires_grad

    return Average()
