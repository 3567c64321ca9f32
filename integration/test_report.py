"""Pages and traces of what is really compiled: breaks, training, sizes that are symbols, recompiles, fallbacks."""

from __future__ import annotations

import ast

import pytest
import torch
from torch import nn

import intarsia
from intarsia_fuser import Priority
from intarsia_report import joined, page
from intarsia_testkit.pages import read_page
from intarsia_testkit.traces import check_trace


def broken(x, w):
    y = torch.relu(x @ w)
    print(end="")
    return torch.softmax(y * 2, -1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(x + self.second(torch.nn.functional.gelu(self.first(x)))).square().mean()


def of_break():
    return intarsia.explain(broken)(torch.randn(4, 8), torch.randn(8, 8))


def of_training():
    return intarsia.explain(Net())(torch.randn(4, 16, requires_grad=True))


def of_recompiles():
    told = intarsia.explain(lambda x, flag: torch.sin(x) * 2 if flag else x.sum())
    calls = [(torch.randn(4, 8), True), (torch.randn(5, 8), True), (torch.randn(6, 8), False)]
    return joined([told(*call) for call in calls])


def of_symbols():
    return intarsia.explain(lambda x: torch.softmax(x, -1) + x.shape[0], dynamic=True)(torch.randn(6, 10))


def of_fallback():
    def failing(gm, inputs):
        raise ValueError("<no> backend")

    with pytest.warns(UserWarning, match="runs in eager"):
        return intarsia.explain(lambda x: x * 2, backend=failing)(torch.ones(3))


def of_ladder():
    return intarsia.explain(lambda x: torch.sin(x) + 1, backend="loops")(torch.ones(3))


def of_nothing():
    told = intarsia.explain(lambda x: x * 2)
    told(torch.ones(3))
    return told(torch.ones(3))


MADE = [of_break, of_training, of_recompiles, of_symbols, of_fallback, of_ladder, of_nothing]


@pytest.mark.parametrize("make", MADE)
def test_the_page_shows_all_that_was_compiled(make, tmp_path):
    told = make()
    told.html(tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    found = read_page(text)
    assert not found.unbalanced and not found.loads and "iframe" not in found.tags
    assert len(found.ids) == len(set(found.ids))
    assert all(link.startswith("#") and link[1:] in found.ids for link in found.links)
    assert "__resume_at_" not in found.text and "__stack" not in found.text
    shown = 0
    for number, graph in enumerate(told.graphs):
        assert len(graph.details) == len(graph.kernels)
        for k, (kernel, detail) in enumerate(zip(graph.kernels, graph.details, strict=True)):
            assert f"g{number}-k{k}" in found.ids and all(f"%{name}" in found.text for name in kernel.writes)
            assert detail.source and detail.source in found.text
        for s, stage in enumerate(graph.stages):
            assert f"g{number}-s{s}" in found.ids
            if stage.after != stage.before:
                shown += sum(map(len, stage.after))
                assert all(f"g{number}-s{s}-p{n}" in found.ids for n in range(len(stage.after)))
                assert all(text.splitlines()[0] in found.text for text in stage.after)
    for broke in told.breaks:
        assert broke.reason in found.text and broke.remedy in found.text
    assert all(line in found.text for line in told.recompiles)
    assert all(event.reason in found.text for event in told.eager)
    assert len(text) < 260_000 + 6 * shown + 400 * (len(told.guards) + len(told.frames))


def test_what_each_program_is_there_for():
    trained, broke, symbols, again = of_training(), of_break(), of_symbols(), of_recompiles()
    (graph,) = trained.graphs
    assert {detail.program for detail in graph.details} == {0, 1} and "backward graph" in page(trained)
    assert len(broke.graphs) == 2 and len(broke.breaks) == 1
    assert symbols.graphs[0].kernels and all(d.predicted_us > 0 for g in symbols.graphs for d in g.details)
    # 6 rows of 10 floats, read once and written once, though both are symbols
    assert symbols.graphs[0].facts.symbols and [k.bytes_read for k in symbols.graphs[0].kernels] == [240]
    assert [k.bytes_written for k in symbols.graphs[0].kernels] == [240] and "<td>0.2</td>" in page(symbols)
    assert len(again.recompiles) == 2
    assert of_fallback().eager and not of_fallback().graphs
    assert [s.name for s in of_ladder().graphs[0].stages][-2:] == ["lower", "interpret"]
    assert of_nothing().graphs == ()


def test_kernels_lead_to_the_users_lines():
    told = of_break()
    text = page(told)
    for graph in told.graphs:
        for kernel in graph.kernels:
            lines = {origin.line for origin in kernel.origins if origin.file == __file__}
            assert lines and all(f"test_report.py:{line}</a>" in text for line in lines)
    assert "y = torch.relu(x @ w)" in read_page(text).text


def total_of(graph):
    return sum(detail.predicted_us for detail in graph.details)


def test_predicted_times_are_those_of_the_plan():
    """A policy that weighs times has weighed these; where rules decide, they are predicted apart from the plan."""
    weighed = intarsia.explain(
        lambda x: torch.softmax(x * 2, -1).sum(0), policy=Priority(), options={"on_error": "raise"}
    )(torch.ones(8, 16))
    for graph in (*weighed.graphs, *of_training().graphs):
        total = total_of(graph)
        prices = [plan for stage in graph.stages for plan in stage.prices]
        assert total == pytest.approx(sum(plan.after_us for plan in prices), abs=0.01) and total > 0
        assert {plan.cost.partition("(")[0] for plan in prices} == {"walks"}
    (graph,) = weighed.graphs
    assert total_of(graph) == pytest.approx(sum(plan.after.predicted_us for plan in graph.plans), abs=0.01)


def test_the_times_of_stages_lie_within_the_call(tmp_path):
    import time

    start = time.time()
    told = of_break()
    stop = time.time()
    spans = [(s.start, s.seconds) for g in told.graphs for s in g.stages] + [(s.start, s.seconds) for s in told.spans]
    assert {s.name for s in told.spans} == {"capture", "guards"}
    assert all(start - 0.1 <= begin and begin + seconds <= stop + 0.1 for begin, seconds in spans)
    told.trace(tmp_path / "out.json")
    events = check_trace((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert len([e for e in events if e["ph"] == "X"]) == len(spans)


def test_nothing_is_watched_where_nobody_asks(monkeypatch):
    import intarsia_report.watching

    def refuse(value):
        raise AssertionError("a text was made")

    monkeypatch.setattr(intarsia_report.watching, "print_value", refuse)
    intarsia.compile(lambda x: torch.sin(x) + 1, options={"on_error": "raise"})(torch.ones(3))
    with pytest.raises(intarsia.IntarsiaError):
        intarsia.explain(lambda x: torch.sin(x) + 1, options={"on_error": "raise"})(torch.ones(3))


def counted(x, seen):
    seen["n"] = x.shape[0]
    print(end="")
    if x.sum() > 0:
        return [x + 1, seen]
    return x - 1


def looped(x):
    for k in range(2):
        try:
            print(end="")
        finally:
            x = x + k
    return x


def test_what_runs_instead_of_a_frame_is_python_in_names_of_users():
    told = joined([of_break(), of_training(), intarsia.explain(counted)(torch.ones(3), {})])
    assert "__" not in told.source and "stack" in told.source and "# Net.forward (" in told.source
    line = broken.__code__.co_firstlineno + 2
    functions = [node for node in ast.parse(told.source).body if isinstance(node, ast.FunctionDef)]
    assert [f.name for f in functions][:3] == ["broken", f"broken_after_the_break_in_line_{line}", "forward"]
    assert sum("compiled_graph_" in ast.unparse(f) for f in functions) == len(told.graphs)
    assert f"# broken_after_the_break_in_line_{line}: broken (after the break in line {line})" in told.source
    assert "seen['n'] = x.shape[0]" in told.source and "\n    if value_" in told.source


def test_what_has_no_python_is_shown_as_bytecode():
    told = intarsia.explain(looped)(torch.ones(3))
    assert "# there is no Python for it yet" in told.source and "RETURN_VALUE" in told.source
    assert "__resume_at" not in told.source and "what runs instead" in page(told)


def of_step(n):
    """Explain a step of AdamW over `n` parameters whose moments are there."""
    parameters = [nn.Parameter(torch.full((4,), 0.25)) for _ in range(n)]
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    for parameter in parameters:
        parameter.grad = torch.ones(4)
    optimizer.step()
    return intarsia.explain(optimizer.step)()


def test_what_is_kept_of_a_step_of_an_optimizer_grows_with_its_parameters():
    kept = [sum(len(text) for s in of_step(n).graphs[0].stages for text in s.after) for n in (8, 32)]
    assert kept[1] < 5 * kept[0], "each moment was told apart from each other one by name"


def test_entries_under_tensors_are_named_without_what_these_hold():
    names = [line for line in of_step(2).graphs[0].stages[0].before[0].splitlines() if line.startswith("input(")]
    assert any("state_parameter_exp_avg'" in name for name in names) and "0_25" not in "".join(names)


def test_a_graph_whose_plan_was_found_shows_its_finished_program_and_kernels(tmp_path, monkeypatch):
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("INTARSIA_WARM_START", "1")

    def f(x):
        return torch.softmax(x.sin(), -1)

    cold, warm = (intarsia.explain(f)(torch.randn(4, 8)).graphs[0] for _ in range(2))
    assert (cold.warm, warm.warm) == ("kept", "found")
    (stage,) = warm.stages
    assert (stage.name, stage.level, stage.before) == ("warm start", "Buildable", cold.stages[0].before)
    assert [d.source for d in warm.details] == [d.source for d in cold.details] != [""]
    assert warm.details[0].source in stage.after[0]
