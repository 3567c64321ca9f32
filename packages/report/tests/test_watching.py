"""What is kept while a pipeline runs: texts before and after, prices, kernels with their source."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from report_values import LOOPS, explained

import intarsia_cpp
import intarsia_triton
from intarsia_fuser import Roofline
from intarsia_ir.records import KernelSource, Launch, Target
from intarsia_loops.level_text import parse_value, print_value
from intarsia_report import GraphWatch, Watching
from intarsia_report.kernel_text import kernel_texts
from intarsia_report.programs import Places, compared


def test_stages_hold_the_programs_before_and_after():
    stages = explained(emit=intarsia_cpp.emit_unit).graphs[0].stages
    assert [s.level for s in stages] == ["Kernels", "Kernels", "Launched", "Emitted", "object"]
    for before, after in pairwise(stages):
        assert before.after is after.before
    assert stages[0].before[0].startswith("// level: Loops") and stages[-1].after == ()
    assert stages[1].after[0] is stages[1].before[0]
    assert print_value(parse_value(stages[0].after[0])) == stages[0].after[0]


def test_kernels_that_are_one_function_share_its_text():
    (graph,) = explained(emit=intarsia_cpp.emit_unit).graphs
    (detail,) = graph.details
    assert detail.language == "cpp" and "kernel0(" in detail.source and detail.source.endswith("\n}")
    assert set(detail.buffers) >= {"top", "shifted"} and detail.program == 0
    (prices,) = graph.stages[0].prices
    assert detail.predicted_us == pytest.approx(sum(k.us for k in prices.kernels))


def test_a_source_of_another_form_leaves_kernels_without_text():
    def emit(launches):
        return KernelSource("MOVE A TO B.", "cobol", launches=(Launch("A", ()),))

    (detail,) = explained(emit=emit).graphs[0].details
    assert (detail.source, detail.language) == ("", "cobol")


def test_functions_of_triton_are_found_with_their_decorators():
    text = "import triton\n\n\n@triton.jit\ndef kernel0(p):\n    pass\n\n\n@triton.jit\ndef kernel1(p):\n    pass\n"
    source = KernelSource(text, "triton", launches=(Launch("kernel1", ("x",)), Launch("kernel0", ("y",))))
    first, second = kernel_texts(source, 2)
    assert first == "@triton.jit\ndef kernel1(p):\n    pass" and "kernel0" in second
    assert kernel_texts(source, 3) == ("", "", "")


def test_prices_are_by_the_given_model():
    cost = Roofline(1.0, 1.0, 50.0, 1)
    watch = GraphWatch(cost)
    loops = parse_value(LOOPS)
    from intarsia_fuser import apply, plan

    made = plan(loops.graph_module, cost=cost)
    watch.note("fuse", 0.0, loops, type(loops)(apply(loops.graph_module, made), loops.contract), (made,))
    assert watch.stages[0].prices[0].cost == cost.name


def test_a_plan_that_is_for_another_program_has_no_prices():
    from intarsia_fuser import Inline, apply, plan

    loops = parse_value(LOOPS)
    made = plan(loops.graph_module)
    other = replace(made, decisions=(Inline("shifted", "double"),))
    watch = GraphWatch()
    watch.note("fuse", 0.0, loops, type(loops)(apply(loops.graph_module, made), loops.contract), (other,))
    assert watch.stages[0].prices == () and watch.stages[0].plans == (other,)


def test_spans_are_noted_for_what_raises_too():
    watching = Watching()

    def fail(code):
        raise ValueError

    with pytest.raises(ValueError):
        watching.timed("capture", fail)(test_spans_are_noted_for_what_raises_too.__code__)
    told = watching.explanation(None, 3)
    assert [s.name for s in told.spans] == ["capture"] and told.result == 3
    assert watching.explanation(None, None).spans == ()


def test_new_and_gone_lines_are_marked():
    before = "// level: Half 2\n  %a: f32[2] = one(%x)\n  %b: f32[2] = two(%a)\n"
    after = "// level: Half 2\n  %b: f32[2] = three(%x)\n"
    lines = compared(before, after, "p", Places(), {"b": 9}, 10_000)
    assert lines.change == "+1 \u22122" and "<del>  %a: f32[2] = one(%x)</del>" in lines.html
    assert '<span id="p-1" data-n="b" data-o="" class="k1" data-k="9"><ins>' in lines.html
    assert compared("// level: Loops 2\n", after, "p", Places(), {}, 10_000).change == ""


PROGRAM = """// level: Half 2
graph(
    %x: f32[2],
    %w: f32[2],
) {
  %a: f32[2] = one(%x)  #1 '%w'
  %b: f32[2] = two {  #2 two
    t0 = load(%a, i0)
    mul(t0, load(%w, i0))
  }
  return (%b, view(%x, f32[2]))
}
launch(%b1: f32[2])
  return (%x)
"""


def test_lines_say_which_lines_they_take_from():
    html = compared("", PROGRAM, "p", Places(), {}, 10_000).html
    found = {m[1]: (m[2], m[3]) for m in re.finditer(r'id="p-(\d+)" data-n="(\w*)"[^>]*? data-u="([^"]*)"', html)}
    taken = {"2": ("x", ""), "3": ("w", ""), "5": ("a", "2"), "6": ("b", "5 3"), "10": ("", "6 2")}
    assert found == taken, "what a body takes is its line's, and what is beside the graph isn't of it"


def test_inputs_on_one_line_are_taken_from_it():
    html = compared("", "graph(%x: f32[2], %w: f32[2]) {\n  return (%w,)\n}\n", "p", Places(), {}, 10_000).html
    assert 'data-n="x w" data-o="" data-u=""' in html and 'data-n="" data-o="" data-u="0"' in html


def test_triton_is_emitted_and_read():
    from intarsia_fuser import apply, plan
    from intarsia_scheduler import scheduled

    loops, target = parse_value(LOOPS), Target("cuda", "sm_90")
    program = apply(loops.graph_module, plan(loops.graph_module, target=target))
    launches = scheduled(program, target).launches
    texts = kernel_texts(intarsia_triton.emit_unit(launches), len(launches.launches))
    assert all(text.startswith("@") and "def kernel" in text for text in texts)
