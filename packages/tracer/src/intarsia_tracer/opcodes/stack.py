"""How many stack entries an instruction takes or looks at: what must lie on the stack for CPython to run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from intarsia_tracer.decode import Instruction

__all__ = ["ENTRIES", "entries"]


def entries(instruction: Instruction) -> int:
    """Return how many entries of the stack an instruction takes or looks at."""
    rule = ENTRIES[instruction.op]
    return rule if isinstance(rule, int) else rule(instruction.arg)


def _plus(extra: int) -> Callable[[int], int]:
    return lambda arg: arg + extra


#: Opcode -> number of entries, or a function of the argument.
ENTRIES: dict[str, int | Callable[[int], int]] = {
    **dict.fromkeys(
        "NOP RESUME CACHE EXTENDED_ARG PRECALL KW_NAMES PUSH_NULL LOAD_BUILD_CLASS LOAD_ASSERTION_ERROR LOAD_LOCALS "
        "RETURN_GENERATOR SETUP_ANNOTATIONS DELETE_NAME DELETE_GLOBAL LOAD_CONST LOAD_NAME LOAD_GLOBAL LOAD_FAST "
        "LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR DELETE_FAST MAKE_CELL LOAD_CLOSURE LOAD_DEREF LOAD_CLASSDEREF DELETE_DEREF "
        "COPY_FREE_VARS JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT RETURN_CONST LOAD_FAST_LOAD_FAST "
        "INTERPRETER_EXIT RESERVED ENTER_EXECUTOR".split(),
        0,
    ),
    **dict.fromkeys(
        "POP_TOP UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT UNARY_INVERT GET_LEN MATCH_MAPPING MATCH_SEQUENCE PUSH_EXC_INFO "
        "GET_AITER GET_ANEXT BEFORE_WITH BEFORE_ASYNC_WITH GET_ITER GET_YIELD_FROM_ITER PRINT_EXPR LIST_TO_TUPLE "
        "RETURN_VALUE IMPORT_STAR YIELD_VALUE ASYNC_GEN_WRAP POP_EXCEPT STORE_NAME UNPACK_SEQUENCE UNPACK_EX FOR_ITER "
        "DELETE_ATTR STORE_GLOBAL LOAD_ATTR LOAD_METHOD IMPORT_FROM JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP STORE_FAST "
        "POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE "
        "POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE "
        "POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE GET_AWAITABLE STORE_DEREF "
        "CALL_INTRINSIC_1 LOAD_FROM_DICT_OR_GLOBALS LOAD_FROM_DICT_OR_DEREF TO_BOOL CONVERT_VALUE FORMAT_SIMPLE "
        "STORE_FAST_LOAD_FAST EXIT_INIT_CHECK".split(),
        1,
    ),
    **dict.fromkeys(
        "BINARY_SUBSCR BINARY_OP COMPARE_OP IS_OP CONTAINS_OP MATCH_KEYS CHECK_EXC_MATCH CHECK_EG_MATCH DELETE_SUBSCR "
        "END_ASYNC_FOR PREP_RERAISE_STAR STORE_ATTR IMPORT_NAME SEND CALL_INTRINSIC_2 END_SEND END_FOR FORMAT_WITH_SPEC "
        "SET_FUNCTION_ATTRIBUTE STORE_FAST_STORE_FAST".split(),
        2,
    ),
    **dict.fromkeys("MATCH_CLASS STORE_SUBSCR LOAD_SUPER_ATTR BINARY_SLICE CLEANUP_THROW".split(), 3),
    **dict.fromkeys("WITH_EXCEPT_START STORE_SLICE".split(), 4),
    **dict.fromkeys("BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_STRING BUILD_SLICE SWAP COPY RAISE_VARARGS".split(), _plus(0)),
    **dict.fromkeys(
        "RERAISE BUILD_CONST_KEY_MAP LIST_APPEND SET_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE".split(), _plus(1)
    ),
    "BUILD_MAP": lambda arg: 2 * arg,
    "CALL": _plus(2),
    "CALL_FUNCTION_EX": lambda arg: 3 + (arg & 1),
    "CALL_KW": _plus(3),
    "DICT_MERGE": _plus(3),  # its error message names the function below
    "FORMAT_VALUE": lambda arg: 1 + bool(arg & 4),
    "MAKE_FUNCTION": lambda arg: 1 + arg.bit_count(),
    "MAP_ADD": _plus(2),
}
