"""numpy beside tensors: arrays made of them and back, ufuncs, methods, promotion, numpy's scalars."""

from __future__ import annotations

import numpy as np
import torch
from torch import randn

from integration.python.program import program

WINDOW = np.hanning(8).astype(np.float32)


@program("numpy", lambda: (randn(3, 4),))
def there_and_back(x):
    a = x.numpy()
    return torch.from_numpy(np.exp(a) / np.exp(a).sum(axis=-1, keepdims=True))


@program("numpy", lambda: (randn(8),))
def window_from_a_global(x):
    return x * torch.from_numpy(WINDOW)


@program("numpy", lambda: (randn(5),))
def norm_by_numpy(x):
    a = np.asarray(x)
    return torch.as_tensor(np.sqrt((a**2).sum()) + a.mean()), a.dtype == np.float32


@program("numpy", lambda: (randn(2, 6),))
def array_methods(x):
    a = x.numpy().reshape(3, 4).T
    return torch.from_numpy(a.copy()), a.shape, a.ndim, a.size


@program("numpy", lambda: (randn(4), np.arange(4, dtype=np.float64)))
def array_as_an_argument(x, weights):
    return x * torch.from_numpy(weights), torch.tensor(weights.sum())


@program("numpy", lambda: (randn(4),))
def promotion_of_numpy(x):
    a = x.numpy()
    return torch.from_numpy(a + np.arange(4)), torch.from_numpy(a * np.float32(2)), (a + 1).dtype.name


@program("numpy", lambda: (randn(6),))
def comparisons_and_where(x):
    a = x.numpy()
    return torch.from_numpy(np.where(a > 0, a, 0 * a)), torch.from_numpy(np.clip(a, -0.5, 0.5))


@program("numpy", lambda: (randn(3, 4),))
def reductions_of_numpy(x):
    a = x.numpy()
    return torch.from_numpy(a.max(axis=0) - a.min(axis=0)), torch.from_numpy(a.argmax(1)), a.std(axis=1).shape


@program("numpy", lambda: (randn(3, 4), randn(4, 2)))
def products_of_numpy(x, y):
    return torch.from_numpy(np.matmul(x.numpy(), y.numpy())), torch.from_numpy(np.einsum("ij,jk->ki", x, y))


@program("numpy", lambda: (randn(2, 3), randn(2, 3)))
def joined_by_numpy(x, y):
    both = np.concatenate([x.numpy(), y.numpy()], axis=1)
    return torch.from_numpy(np.stack([both, both + 1])), np.hstack((x.numpy(), y.numpy())).shape


@program("numpy", lambda: (randn(6),))
def sliced_array(x):
    a = x.numpy()
    return torch.from_numpy(a[::2].copy()), torch.from_numpy(a[1:4] + 1), torch.from_numpy(a[[0, 5]])


@program("numpy", lambda: (randn(4),))
def array_is_written(x):
    a = x.clone().numpy()
    a[1:3] = 7
    a *= 2
    return torch.from_numpy(a)


@program("numpy", lambda: (randn(4),))
def array_shares_memory(x):
    a = x.numpy()
    a += 1
    return x * 1


@program("numpy", lambda: (randn(3),))
def frequencies_by_numpy(x):
    angles = 1.0 / np.power(10000, 2 * (np.arange(3) // 2) / np.float32(3))
    return x * torch.tensor(angles, dtype=torch.float32)


@program("numpy", lambda: (randn(12, 2),))
def size_by_lcm(x):
    n = int(np.lcm(4, 6))
    return x[:n].reshape(-1, n), int(np.ceil(2.5)), float(np.sqrt(2.0))


@program("numpy", lambda: (randn(3),))
def array_of_a_list(x):
    return x * torch.from_numpy(np.array([1.0, 2.0, 3.0], dtype=np.float32)), np.prod([2, 3])


@program("numpy", lambda: (randn(3),))
def scalars_of_numpy(x):
    scale, count = np.float64(0.5), np.int64(3)
    return x * float(scale), x + int(count), isinstance(scale, float), count.item()


@program("numpy", lambda: (randn(4, 4),))
def triangle_of_numpy(x):
    return x.masked_fill(torch.from_numpy(np.triu(np.ones((4, 4)), k=1).astype(bool)), float("-inf")).softmax(-1)


@program("numpy", lambda: (randn(5),))
def sorted_by_numpy(x):
    a = x.numpy()
    order = np.argsort(a)
    return torch.from_numpy(a[order]), torch.from_numpy(order), torch.from_numpy(np.cumsum(a))


@program("numpy", lambda: (randn(2, 5),))
def numpy_calls_a_helper(x):
    def standard(a):
        return (a - a.mean(axis=-1, keepdims=True)) / (a.std(axis=-1, keepdims=True) + 1e-5)

    return torch.from_numpy(standard(x.numpy())).tanh()
