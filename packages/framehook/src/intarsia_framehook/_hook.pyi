from collections.abc import Callable
from types import CodeType, EllipsisType, FunctionType
from typing import Any, Final, NamedTuple

# what a callback may answer: see set_callback
_Guarded = tuple[Callable[..., Any], CodeType | None] | tuple[Callable[..., Any], CodeType | None, bool]
_Answer = None | bool | EllipsisType | CodeType | _Guarded
_BailOut = Callable[[Exception, bool], bool | Callable[[], object]]

UNBOUND: Final[object]

class FrameInfo(NamedTuple):
    globals: dict[str, Any]
    closure: tuple[Any, ...] | None
    locals: dict[str, Any]
    function: FunctionType
    error: BaseException | None

class Bailout(BaseException): ...

class Hooked:
    function: Callable[..., Any]
    callback: Callable[[CodeType, FrameInfo], _Answer] | None
    owner: object
    bypass: Callable[[], bool] | None
    __wrapped__: Callable[..., Any]  # once functools.update_wrapper has set it
    def __init__(
        self,
        function: Callable[..., Any],
        callback: Callable[[CodeType, FrameInfo], _Answer] | None,
        owner: object = None,
        bypass: Callable[[], bool] | None = None,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]: ...

class Unhooked:
    function: Callable[..., Any]
    bail_out: _BailOut | None
    def __init__(self, function: Callable[..., Any], bail_out: _BailOut | None = None) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def set_callback(
    callback: Callable[[CodeType, FrameInfo], _Answer] | None, owner: object = None
) -> Callable[[CodeType, FrameInfo], _Answer] | None: ...
def skip(code: CodeType, /) -> None: ...
def quiet(code: CodeType, /) -> None: ...
def alone() -> bool: ...
def reset(code: CodeType, owner: object = ...) -> None: ...
def entries(
    code: CodeType, owner: object = None
) -> list[tuple[Callable[..., Any], CodeType | None, int] | None] | None: ...
def always(*values: Any) -> bool: ...
def fits(code: CodeType, replacement: object, /) -> bool: ...
def replace_by_call(on: bool, /) -> bool: ...
