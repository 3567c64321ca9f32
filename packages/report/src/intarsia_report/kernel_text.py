"""The function of each launch in the text of a unit: of C++ and of Triton, as our emitters print them."""

from __future__ import annotations

import ast
import re

from intarsia_ir.records import KernelSource

__all__ = ["all_kernel_texts", "kernel_texts"]


def kernel_texts(source: KernelSource, n_launches: int) -> tuple[str, ...]:
    """Return the text of the function of each launch, in order; equal launches share one.

    Args:
        source: A unit.
        n_launches: How many launches it has: of C++, one entry may make several.

    Returns:
        As many texts; each is "" where the unit isn't of the form of our emitters.

    Example:
        >>> from intarsia_ir.records import Launch
        >>> text = '''static void kernel0(float *x) {
        ...   *x = 1;
        ... }
        ... extern "C" void seg0(float *p0) {
        ...   kernel0(p0);
        ... }
        ... '''
        >>> print(kernel_texts(KernelSource(text, "cpp", launches=(Launch("seg0", ("x",)),)), 1)[0])
        static void kernel0(float *x) {
          *x = 1;
        }
    """
    found = all_kernel_texts(source)
    return found if len(found) == n_launches else ("",) * n_launches


def all_kernel_texts(source: KernelSource) -> tuple[str, ...]:
    """Return the text of the function of each launch, in order; nothing where the unit isn't of our emitters' form."""
    return _READERS[source.language](source) if source.language in _READERS else ()


def _of_cpp(source: KernelSource) -> tuple[str, ...]:
    """A C entry calls the function of each of its launches, in order."""
    text = "\n".join((source.text, *source.parts))
    functions = {name: whole for whole, name in _FUNCTION.findall(text)}
    called = [
        name
        for launch in source.launches
        for name in _CALL.findall(functions.get(launch.entry, ""))
        if name in functions
    ]
    return tuple(functions[name] for name in called)


# definitions end in a brace at the start of a line
_FUNCTION = re.compile(r"^((?:static|extern)[^\n;]*?\bvoid (\w+)\([^\n]*\{\n.*?^\})", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"^ +(\w+)\(", re.MULTILINE)


def _of_triton(source: KernelSource) -> tuple[str, ...]:
    """A launch names its function; the unit is a module of Python."""
    lines = source.text.splitlines()
    functions = {}
    for node in ast.parse(source.text).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
            functions[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return tuple(functions.get(launch.entry, "") for launch in source.launches)


_READERS = {"cpp": _of_cpp, "triton": _of_triton}
