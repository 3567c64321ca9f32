"""Numbers and indices as C++ text, and whose vector functions are called."""

import pytest

from intarsia_cpp._index import c_text
from intarsia_cpp._ops import number_text
from intarsia_cpp.prelude.libm import libm_fragments
from intarsia_loops.index import axis, lift

AXIS = lift(axis("i0", 9))


@pytest.mark.parametrize(
    ("number", "dtype", "text"),
    [
        (300, "u8", "44"),
        (-1, "u8", "255"),
        (200, "i8", "-56"),
        (127, "i8", "127"),
        (1 << 16, "i16", "0"),
        ((1 << 32) + 5, "i32", "5"),
        (1 << 31, "i32", "-2147483648LL"),
        (1 << 63, "i64", "(-9223372036854775807LL - 1)"),
        (2.5, "f32", "2.5"),
        (float("inf"), "f32", "__builtin_inf()"),
    ],
)
def test_numbers_are_wrapped_to_the_type(number: float, dtype: str, text: str) -> None:
    assert number_text(number, dtype) == text


def test_indices_are_sums_of_products() -> None:
    assert c_text(AXIS * 3, lambda a: a.key) == "3*i0"
    assert c_text(AXIS * -3, lambda a: a.key) == "(-3)*i0"
    assert c_text(lift(0), lambda a: a.key) == "0"
    assert c_text(AXIS * (1 << 31), lambda a: a.key) == "2147483648LL*i0"


@pytest.mark.parametrize(
    ("isa", "symbols", "others"),
    [
        ("avx512", ("_ZGVeN16v_tanhf", "_ZGVeN8v_tanh(", "_ZGVdN4v_tanh("), ()),
        ("avx2", ("_ZGVdN8v_tanhf", "_ZGVdN4v_tanh("), ("_ZGVe",)),
        ("scalar", (), ("_ZGV",)),
    ],
)
def test_vector_functions_are_those_of_the_instruction_set(
    isa: str, symbols: tuple[str, ...], others: tuple[str, ...]
) -> None:
    text = dict(libm_fragments(isa, [16, 8, 4]))["vtanh"]
    assert all(symbol in text for symbol in symbols) and not any(symbol in text for symbol in others)
