"""Operators that differ on a GPU: recurrent networks are library calls, and rows of odd length are walked twice."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}


def as_eager(function, *args, externs=None, **tolerance):
    """Compare with eager; nothing may warn, and the graph has this many library calls."""
    intarsia.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        want = function(*args)
        got = intarsia.compile(function, options=RAISE)(*args)
    torch.testing.assert_close(got, want, check_stride=True, **tolerance)
    stats = intarsia.stats()
    assert stats.frames_compiled >= 1 and stats.fallbacks == 0
    assert externs is None or stats.extern_calls == externs


FORMS = [{}, {"batch_first": True}, {"num_layers": 2, "bidirectional": True}, {"dropout": 0.5, "num_layers": 2}]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form) or "plain")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("cls", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_recurrent_network_in_evaluation_is_one_library_call(cls, dtype, form):
    torch.manual_seed(0)
    module = cls(16, 32, **form).to("cuda", dtype).eval()
    x = torch.randn(7, 5, 16, device="cuda", dtype=dtype)
    as_eager(lambda x: module(x)[0] * 2, x, externs=1, rtol=1e-3, atol=1e-3)


def test_a_packed_batch_and_a_projection():
    module = nn.LSTM(16, 32, proj_size=8).cuda().eval()
    x = torch.randn(7, 3, 16, device="cuda")
    packed = nn.utils.rnn.pack_padded_sequence(x, [7, 4, 2])
    as_eager(lambda x: module(x)[0], x, externs=1, rtol=1e-3, atol=1e-3)
    fast = intarsia.compile(module)
    with torch.no_grad():
        torch.testing.assert_close(fast(packed)[0].data, module(packed)[0].data)


def test_a_recurrent_network_of_changing_length():
    module = nn.GRU(16, 32, batch_first=True).cuda().eval()
    fast = intarsia.compile(module, dynamic=True, options=RAISE)
    with torch.no_grad():
        for n in (3, 5, 8):
            x = torch.randn(2, n, 16, device="cuda")
            torch.testing.assert_close(fast(x), module(x))


NORMALISED = {
    "norm": lambda x: x / torch.norm(x, dim=1, keepdim=True),
    "softmax": lambda x: torch.softmax(x, 1),
    "standardised": lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True),
    "argmax": lambda x: x / x.amax(1, keepdim=True) + x.argmax(1, keepdim=True),
    "normalize": lambda x: F.normalize(x, dim=1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[1],)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NORMALISED)
def test_rows_of_odd_length(name, dtype):
    x = torch.randn(1024, 50257, device="cuda", dtype=dtype)
    as_eager(NORMALISED[name], x, rtol=1e-2 if dtype is torch.bfloat16 else 1e-4, atol=1e-2)


ROOM = torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory > 60 << 30
LARGE = [(32768, 65535), (32769, 65537)] if ROOM else [(4096, 65535)]


@pytest.mark.parametrize("shape", LARGE)
def test_a_matrix_about_as_large_as_32_bits_count(shape):
    x = torch.empty(shape, device="cuda").uniform_(0.5, 1.0)
    fast = intarsia.compile(NORMALISED["norm"], options=RAISE)
    got = fast(x)
    for rows in (slice(0, 2), slice(-2, None)):
        torch.testing.assert_close(got[rows], NORMALISED["norm"](x[rows]))
    torch.testing.assert_close(got.square().sum(1), torch.ones(shape[0], device="cuda"), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("scale", [(1.3, 1.0), (2.4, 2.0)])
def test_a_side_that_keeps_or_doubles_its_size(mode, scale):
    x = torch.randn(2, 8, 3, 2, device="cuda")
    as_eager(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), x)
    as_eager(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), x.to(memory_format=torch.channels_last))
