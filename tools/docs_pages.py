"""Write the pages of docs/ that are generated: error codes, the operations that lower to loops, eager's rules,
and one for each package.

`python tools/docs_pages.py` rewrites them; `--check` only says whether they are up to date.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    stale = []
    pages = {"errors.md": errors_page(), "lowerings.md": lowerings_page(), "eager-rules.md": eager_rules_page()}
    pages |= packages_pages()
    for name, text in pages.items():
        path = ROOT / "docs" / name
        path.parent.mkdir(exist_ok=True)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"stale: {', '.join(stale)}; rewrite with: python tools/docs_pages.py", file=sys.stderr)
        return 1
    print(f"docs: {'rewrote ' + ', '.join(stale) if stale else 'generated pages are up to date'}")
    return 0


def packages_pages() -> dict[str, str]:
    """Return a page for each package, which is its README, and one that lists them as architecture.md does."""
    readmes = {path.parent.name: path for path in sorted(ROOT.glob("packages/*/README.md"))}
    order = re.findall(r"\| `packages/(\w+)` \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    lines = [
        "# The packages",
        "",
        "Each installs and is tested alone; its page is its README, whose example runs there.",
        "",
    ]
    listed = [*order, *sorted(readmes.keys() - set(order))]
    lines += ["```{toctree}", ":maxdepth: 1", "", *listed, "```"]
    pages = {f"packages/{name}.md": f"```{{include}} ../../packages/{name}/README.md\n```\n" for name in listed}
    return {"packages/index.md": "\n".join(lines) + "\n", **pages}


# codes whose message says too little without the values in it
MEANINGS = {
    "dispatch.internal": "the compiler raised an error that is none of its own: a bug of Intarsia",
    "dispatch.too_many_versions": "a function was compiled `recompile_limit` times, and no version fits the call",
    "fuse.extern_between": "two kernels can't be fused: an extern call depends on one, and the other on it",
    "options.value": "an argument has a value that it can't have; the message lists the allowed ones",
    "pipeline.stage": "a stage of the pipeline raised an error of its own: of Intarsia, or of whoever gave the stage",
    "runtime.compiler_failed": "the C++ compiler failed; the message has its command and its output",
    "runtime.fault": "a compiled graph raised while running; the frame runs again in eager, which raises its own error",
    "runtime.no_compiler": "no C++ compiler was found",
    "runtime.triton_failed": "Triton failed to compile a kernel; the message has its output",
    "tiles.check": "a check of a tile program failed while it was interpreted; the message is the check's own",
    "tracer.internal": "tracing a function failed: a bug of Intarsia",
    "verify.aten": "a graph breaks the rules of the aten dialect (`intarsia_ir/aten/verify.py`)",
    "verify.joint": "the halves of a training graph don't make up the joint one (`intarsia_autodiff/check.py`)",
    "verify.kernels": "a program breaks the rules of the kernels dialect (`intarsia_loops/kernels/verify.py`)",
    "verify.tiles": "a program breaks the rules of the tiles dialect (`intarsia_loops/tiles/verify.py`)",
    "verify.loops": "a program breaks the rules of the loops dialect (`intarsia_loops/loops/verify.py`)",
    "verify.torch": "a graph breaks the rules of the torch dialect (`intarsia_ir/torch/verify.py`)",
}
BREAKS = ("Break", "Foreign", "Whole", "TooDeep", "Refused", "GraphBreak", "Declined")


def errors_page() -> str:
    """Return the page of error and break codes, from the sources that raise them."""
    import intarsia_tensorcapture  # noqa: F401  (registers its kinds of break)
    from intarsia_pyeval.breaks import REGISTRY

    places: dict[str, set[str]] = {}
    texts: dict[str, list[str]] = {}
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        for code, text in codes(ast.parse(path.read_text(encoding="utf-8"))):
            places.setdefault(code, set()).add(path.relative_to(ROOT).as_posix())
            texts.setdefault(code, []).extend([text] if text else [])
    for code in MEANINGS:
        places.setdefault(code, set())
    meanings = {code: meaning_of(code, texts.get(code, []), REGISTRY) for code in places}
    lines = [
        "# Error codes",
        "",
        "Every error, break and refusal of Intarsia carries a stable code; the message beside it says what happened,",
        "where in your program, and what to do. This page lists each code with what it means (… stands for a value)",
        "and the source that raises it. (Generated by `tools/docs_pages.py`.)",
        "",
        "| code | meaning | raised in |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{code}` | {meanings[code]} | {sources(places[code])} |" for code in sorted(places)]
    lines += [
        "",
        "## Graph breaks",
        "",
        "A break ends a graph, and another one begins after it: not an error, unless `fullgraph=True` makes it one.",
        "",
        "| code | what can't be traced | remedy |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{code}` | {kind.summary} | {kind.remedy} |" for code, kind in sorted(REGISTRY.items())]
    return "\n".join(lines) + "\n"


def codes(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the codes that a module raises or refuses with, and the message beside each ("" when it isn't literal)."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        messages = list(node.args)
        values = [k.value for k in node.keywords if k.arg == "code"]
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in BREAKS and node.args:
            values.append(messages.pop(0))
        for value in values:
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value, words(messages[0]) if messages else ""


def words(node: ast.expr) -> str:
    """Return the text of a literal or formatted string, with … for each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def meaning_of(code: str, texts: list[str], breaks: Mapping[str, Any]) -> str:
    """Return what a code means, in a sentence or two."""
    if code in MEANINGS:
        return MEANINGS[code]
    if code in breaks:
        return str(breaks[code].summary)
    known = [" ".join(text.split()) for text in dict.fromkeys(texts)]
    if not any(re.search(r"\w", text) for text in known):
        raise SystemExit(f"{code} has no literal message: say in MEANINGS of tools/docs_pages.py what it means")
    return "; or: ".join(known[:2]).replace("|", "\\|")


def sources(paths: set[str]) -> str:
    """Return up to three paths as Markdown."""
    shown = [f"`{path}`" for path in sorted(paths)[:3]]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def lowerings_page() -> str:
    """Return the page of ATen overloads that lower to loop nests, by family."""
    import intarsia_lowering

    families = intarsia_lowering.coverage()
    lines = [
        "# Operations that lower to loop nests",
        "",
        f"{sum(map(len, families.values()))} overloads in {len(families)} families, one file of "
        "`packages/lowering/src/intarsia_lowering/` each; every other",
        "operation is an extern call of ATen. (Generated by `tools/docs_pages.py`.)",
    ]
    for family, names in families.items():
        lines += ["", f"## {family}", "", *(f"- `{name}`" for name in names)]
    return "\n".join(lines) + "\n"


def eager_rules_page() -> str:
    """Return the page of eager's rules: a section for each kind, a line for each rule with its operators."""
    from intarsia_ir import eager

    lines = [
        "# Eager's rules",
        "",
        "What eager's kernels refuse where meta kernels and decompositions don't, where they round half types, and",
        "which strides and types they give where fake tensors have others. The recorder, the functionalizer, autodiff",
        "and the lowerings read these rows (`intarsia_ir.eager`); tests hold each to eager. An operator's name stands",
        "for its in-place form too, and without an overload for all of them. Types that torch versions differ in are",
        "those of the version that wrote this page. No row is needed where a rule is every operator's: an elementwise",
        "one refuses numbers that its operands' type can't hold, and a write memory that overlaps itself or an operand",
        "in part.",
        "(Generated by `tools/docs_pages.py`.)",
    ]
    for title, kinds in RULE_SECTIONS.items():
        lines += ["", f"## {title}", "", "| where | rule | operators |", "| --- | --- | --- |"]
        operators: dict[tuple[str, str], list[str]] = {}
        for row in eager.ROWS:
            if type(row.rule).__name__ in kinds:
                operators.setdefault((row.device.value, rule_text(row.rule)), []).append(f"`{row.op}`")
        lines += [f"| {device} | {text} | {', '.join(sorted(ops))} |" for (device, text), ops in operators.items()]
    return "\n".join(lines) + "\n"


RULE_SECTIONS = {
    "Element types that are refused": ("RefusedTypes",),
    "Operands that are refused together": ("SameType", "TypesAt", "OperandTypes", "ParameterTypes"),
    "Shapes and dimensions that are refused": ("OperandShapes", "RefusedDimension", "Part", "Written"),
    "Results that an operand can't hold, and numbers that are refused": (
        "StoredType",
        "RefusedNumber",
        "ConvertedNumber",
    ),
    "Half types that are rounded inside": ("Rounds",),
    "Strides and types of results": ("Layout", "ResultType", "Orders"),
    "Strides of gradients": ("GradientLayout", "LaidLike"),
}


def rule_text(rule: Any) -> str:
    """Return a rule in words."""
    from intarsia_ir import eager

    match rule:
        case eager.RefusedTypes():
            empty = "" if rule.if_empty else ", but of nothing"
            return f"{types_text(rule.types)}; the type is {rule.decides.value}{empty}"
        case eager.SameType():
            which = f"tensors {' and '.join(map(str, rule.operands))}" if rule.operands else "all tensors"
            return f"{which} are of one type"
        case eager.TypesAt():
            return f"tensor {rule.operand} is of {types_text(rule.types)}"
        case eager.ParameterTypes():
            others = f"all of {types_text({rule.parameters})} beside an operand of {types_text(rule.beside)}"
            return f"parameters have the operand's type, or are {others}; statistics have the parameters' type"
        case eager.StoredType():
            return f"an in-place form stores {'a float type' if rule.made_float else 'what the operands promote to'}"
        case eager.RefusedNumber():
            return f"argument {rule.argument} {rule.relation} {rule.bound:g} is refused"
        case eager.RefusedDimension():
            return f"{' and '.join(f'`{name}`' for name in rule.arguments)} beyond the first operand's dimensions"
        case eager.Rounds():
            return f"{rule.what.value}: {types_text(rule.types)}"
        case eager.Orders():
            return f"elementwise, {rule.layout.value}"
        case eager.LaidLike():
            return f"as empty_like of {' and '.join(f'`{name}`' for name in rule.operands)}"
    return str(rule.value)


def types_text(types: Any) -> str:
    """Return element types by their short names."""
    from intarsia_ir.dtypes import dtype_name

    return " ".join(sorted(map(dtype_name, types))) or "none"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
