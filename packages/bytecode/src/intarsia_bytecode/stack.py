"""How many stack entries an instruction takes or looks at: what must lie on the stack for CPython to run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intarsia_bytecode.decode import Instruction

__all__ = ["ENTRIES", "entries"]


def entries(instruction: Instruction) -> int:
    """Return how many entries of the stack an instruction takes or looks at."""
    rule = ENTRIES[instruction.op]
    return rule if isinstance(rule, int) else rule(instruction.arg)


def _plus(extra: int) -> Callable[[int], int]:
    """Return the rule of an instruction that takes as many entries as its argument says, and some more."""
    return lambda arg: arg + extra


_NONE = """
    CACHE COPY_FREE_VARS DELETE_DEREF DELETE_FAST DELETE_GLOBAL DELETE_NAME ENTER_EXECUTOR EXTENDED_ARG
    INTERPRETER_EXIT JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD KW_NAMES LOAD_ASSERTION_ERROR
    LOAD_BUILD_CLASS LOAD_CLASSDEREF LOAD_CLOSURE LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_FAST_CHECK
    LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_LOCALS LOAD_NAME MAKE_CELL NOP PRECALL PUSH_NULL RESERVED RESUME RETURN_CONST
    RETURN_GENERATOR SETUP_ANNOTATIONS
"""
_ONE = """
    ASYNC_GEN_WRAP BEFORE_ASYNC_WITH BEFORE_WITH CALL_INTRINSIC_1 CONVERT_VALUE DELETE_ATTR EXIT_INIT_CHECK
    FORMAT_SIMPLE FOR_ITER GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER GET_LEN GET_YIELD_FROM_ITER IMPORT_FROM
    IMPORT_STAR JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP LIST_TO_TUPLE LOAD_ATTR LOAD_FROM_DICT_OR_DEREF
    LOAD_FROM_DICT_OR_GLOBALS
    LOAD_METHOD MATCH_MAPPING MATCH_SEQUENCE POP_EXCEPT POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE
    POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE
    POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
    POP_JUMP_IF_TRUE POP_TOP PRINT_EXPR PUSH_EXC_INFO RETURN_VALUE STORE_DEREF STORE_FAST STORE_FAST_LOAD_FAST
    STORE_GLOBAL STORE_NAME TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE
    YIELD_VALUE
"""
_TWO = """
    BINARY_OP BINARY_SUBSCR CALL_INTRINSIC_2 CHECK_EG_MATCH CHECK_EXC_MATCH COMPARE_OP CONTAINS_OP DELETE_SUBSCR
    END_ASYNC_FOR END_FOR END_SEND FORMAT_WITH_SPEC IMPORT_NAME IS_OP MATCH_KEYS PREP_RERAISE_STAR SEND
    SET_FUNCTION_ATTRIBUTE STORE_ATTR STORE_FAST_STORE_FAST
"""
_THREE = "BINARY_SLICE CLEANUP_THROW LOAD_SUPER_ATTR MATCH_CLASS STORE_SUBSCR"
_AS_ARGUMENT = "BUILD_LIST BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TUPLE COPY RAISE_VARARGS SWAP"
_ONE_MORE = "BUILD_CONST_KEY_MAP DICT_UPDATE LIST_APPEND LIST_EXTEND RERAISE SET_ADD SET_UPDATE"

#: Opcode -> number of entries, or a function of the argument.
ENTRIES: dict[str, int | Callable[[int], int]] = {
    **dict.fromkeys(_NONE.split(), 0),
    **dict.fromkeys(_ONE.split(), 1),
    **dict.fromkeys(_TWO.split(), 2),
    **dict.fromkeys(_THREE.split(), 3),
    **dict.fromkeys(_AS_ARGUMENT.split(), _plus(0)),
    **dict.fromkeys(_ONE_MORE.split(), _plus(1)),
    "BUILD_MAP": lambda arg: 2 * arg,
    "CALL": _plus(2),
    "CALL_FUNCTION_EX": lambda arg: 3 + (arg & 1),
    "CALL_KW": _plus(3),
    "DICT_MERGE": _plus(3),  # its error message names the function below
    "FORMAT_VALUE": lambda arg: 1 + bool(arg & 4),
    "MAKE_FUNCTION": lambda arg: 1 + arg.bit_count(),
    "MAP_ADD": _plus(2),
    "STORE_SLICE": 4,
    "WITH_EXCEPT_START": 4,
}
