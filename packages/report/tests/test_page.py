"""The page parses, shows everything, escapes what is the user's, loads nothing, and stays within its size."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources

import pytest
from report_values import explained

from intarsia_cpp import emit_unit
from intarsia_dispatch import DispatchStats
from intarsia_report import Explanation, joined, page
from intarsia_report.libraries import digest_of, libraries, own_scripts
from intarsia_report.timeline import bars_of
from intarsia_testkit.pages import read_page

LINES = {1: "import torch", 2: "def f(x):", 3: "    y = x * 2", 4: "    t = y.amax(-1)", 5: "    return y - t[:, None]"}
HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">\'"&amp;\u202e\u00e9\U0001f600'


def line_of(file: str, line: int) -> str:
    return LINES.get(line, "")


@pytest.fixture(scope="module")
def told() -> Explanation:
    return explained(emit=emit_unit)


def test_every_link_leads_somewhere_and_nothing_is_loaded(told):
    found = read_page(page(told, line_of=line_of))
    assert not found.unbalanced and not found.loads
    assert len(found.ids) == len(set(found.ids))
    assert found.links and all(link.startswith("#") and link[1:] in found.ids for link in found.links)
    assert "iframe" not in found.tags


def test_each_script_may_run_by_its_digest_and_is_one_of_ours_or_a_librarys(told):
    text = page(told, line_of=line_of)
    allowed = re.search(r"script-src((?: 'sha256-[^']+')+);", text)[1].split()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)  # as a browser hashes them: whole
    assert allowed == [f"'sha256-{digest_of(script)}'" for script in scripts]
    assert scripts == [*(library.script for library in libraries()), *own_scripts()]
    # what a browser would read otherwise than it is written, or look for elsewhere
    for script in scripts:
        assert not any(mark in script for mark in ("</script", "\0", "\r", "sourceMappingURL"))
        assert re.search(r"<!--(?:(?!-->).)*<script", script, re.DOTALL) is None


def test_libraries_are_those_that_their_list_says_and_their_licences_go_along(told):
    folder = resources.files("intarsia_report") / "vendored"
    rows = json.loads((folder / "libraries.json").read_text(encoding="utf-8"))
    shown = read_page(page(told, line_of=line_of)).text
    for row, library in zip(rows, libraries(), strict=True):
        whole = (folder / row["folder"] / row["file"]).read_bytes()
        assert hashlib.sha256(whole).hexdigest() == row["sha256"], "a library isn't as its authors made it"
        assert library.licence_text in shown and f"{library.name} {library.version}" in shown
        assert "Copyright" in library.licence_text


def test_programs_have_drawings_and_the_one_of_the_kernels_is_at_the_graph(told):
    text = page(told, line_of=line_of)
    found = read_page(text)
    drawn = re.findall(r'<details class="drawing" data-of="([^"]+)"', text)
    assert set(drawn) <= set(found.ids) and drawn[0] == "g0-s2-p0"
    assert "Drawing of the graph, coloured by kernel" in text
    assert set(drawn) == set(re.findall(r'<section class="program" id="([^"]+)"', text))
    kernel, detail = told.graphs[0].kernels[0], told.graphs[0].details[0]
    cost = f"{kernel.bytes_read / 1024:,.1f} KB read, {kernel.bytes_written / 1024:,.1f} KB written"
    assert f'data-label="0.0" data-cost="{cost}' in text and f"{detail.predicted_us:.2f} µs predicted" in text


def test_sources_have_a_number_for_each_line_and_the_name_of_their_language(told):
    text = page(told, line_of=line_of)
    source = told.graphs[0].details[0].source
    numbers = "".join(f"{n + 1}\n" for n in range(len(source.splitlines())))
    viewer = re.search(r'<div class="code" data-language="cpp"><pre class="numbers" [^>]*>([^<]*)</pre>', text)
    assert viewer[1] == numbers and '<table class="source" data-language="python">' in text


def test_every_level_and_every_kernel_is_there(told):
    found = read_page(page(told, line_of=line_of))
    for stage in told.graphs[0].stages:
        assert stage.name in found.text
        for text in stage.after:
            for line in text.splitlines():
                shown = line.partition("  #")[0]
                assert shown in found.text, shown
    for kernel, detail in zip(told.graphs[0].kernels, told.graphs[0].details, strict=True):
        assert all(f"%{name}" in found.text for name in kernel.writes)
        assert detail.source and detail.source in found.text
        assert detail.predicted_us > 0 and f"{detail.predicted_us:.2f}" in found.text
    for number in range(len(told.graphs[0].kernels)):
        assert f"g0-k{number}" in found.ids


def test_programs_link_to_the_lines_that_they_come_from(told):
    text = page(told, line_of=line_of)
    for line in (3, 4, 5):
        assert f'id="u0-{line}"' in text and f'<a href="#u0-{line}">model.py:{line}</a>' in text
        assert LINES[line].strip() in read_page(text).text
    row = re.search(r'<tr id="u0-4">.*?</tr>', text)[0]
    assert 'href="#g0-k0"' in row


def test_decisions_have_reasons_and_what_they_save(told):
    found = read_page(page(told, line_of=line_of))
    (prices,) = told.graphs[0].stages[0].prices
    assert len(prices.decisions) == len(told.graphs[0].plans[0].decisions) >= 2
    for decision in prices.decisions:
        assert f"{decision.saved_us:.2f}" in found.text and decision.decision.why in found.text


def test_frames_breaks_guards_and_recompiles_are_told(told):
    found = read_page(page(told, line_of=line_of))
    for said in ("f prints", "print after it", "tracer.output", "constant: flag = 'f'", "branch on a flag"):
        assert said in found.text
    assert told.recompiles[0] in found.text and "remedy: hoist it" in found.text
    assert "f can't be compiled" in found.text
    assert "f (after the break in line 3)" in found.text and "__resume_at_" not in found.text


def test_what_is_the_users_is_escaped():
    plain = read_page(page(explained(), line_of=line_of))
    text = page(explained(name=HOSTILE), title=HOSTILE, line_of=lambda file, line: HOSTILE)
    found = read_page(text)
    assert found.scripts == plain.scripts and "img" not in found.tags and not found.loads and not found.unbalanced
    assert found.text.count(HOSTILE) > 5
    assert "script-src 'sha256-" in text and "default-src 'none'" in text


def test_files_of_any_name_are_linked():
    text = page(explained(file="/a b/<s> & c.py"), line_of=line_of)
    assert "&lt;s&gt; &amp; c.py:4</a>" in text
    assert not read_page(text).unbalanced
    read_page(page(explained(file="<stdin>"), line_of=lambda file, line: "")).ids.index("u0-3")


def test_half_a_character_can_be_written(tmp_path):
    explained(name="half \ud83d").html(tmp_path / "out.html")
    assert "half \\ud83d" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_unchanged_programs_are_there_once(told):
    text = page(told, line_of=line_of)
    assert text.count("The program is as it was behind") == 1
    again = re.search(r'<details class="stage" id="g0-s1">.*?</details>', text, re.DOTALL)[0]
    assert 'href="#g0-s0"' in again and "<pre" not in again


def test_programs_beyond_the_budget_are_said_to_be_left_out(told):
    whole, short = page(told, line_of=line_of), page(told, line_of=line_of, budget=800)
    assert "more lines are left out" in short and "more lines are left out" not in whole
    assert len(short) < len(whole) and not read_page(short).unbalanced
    found = read_page(short)
    assert all(link[1:] in found.ids for link in found.links)


def test_a_page_is_not_much_larger_than_what_it_shows(told):
    shown = sum(len(text) for stage in told.graphs[0].stages for text in stage.after)
    empty = page(Explanation((), (), DispatchStats()))
    assert len(page(told, line_of=line_of)) < len(empty) + 4 * shown + 20_000
    assert len(empty) < 35_000 + sum(len(library.script + library.licence_text) for library in libraries()) < 250_000


def test_a_page_is_called_after_the_functions_that_were_compiled():
    text = page(explained(name="Net.forward (after the break in line 3)"), line_of=line_of)
    assert "<h1>Net.forward</h1>" in text and "<title>Net.forward: what Intarsia compiled</title>" in text


def test_several_calls_make_one_page(told):
    both = joined([told, told])
    assert both.stats.graphs == 2 and len(both.graphs) == 2
    found = read_page(page(both, line_of=line_of))
    assert len(found.ids) == len(set(found.ids)) and {"g0-k0", "g1-k0", "f0", "f5"} <= set(found.ids)


def test_bars_lie_within_the_whole(told):
    text = page(joined([told, told]), line_of=line_of)
    bars = [(float(a), float(b)) for a, b in re.findall(r"left:([\d.]+)%;width:([\d.]+)%", text)]
    assert len(bars) == 2 * (len(told.graphs[0].stages) + 1)
    assert all(left >= 0 and left + width <= 100.01 for left, width in bars)
    assert max(width for _, width in bars) > 20


def test_memory_over_time_is_shown_with_its_peak():
    made = explained(emit=emit_unit)
    (steps,) = made.graphs[0].memory
    text = page(made, line_of=line_of)
    assert steps and "Memory of the graph over time" in text
    assert f"{max(step.n_bytes for step in steps) / 1024:,.1f} KB at most" in read_page(text).text
    assert text.count('class="bar"') == len(steps) + len(bars_of(made))
    assert "width:100.000%" in text.partition("over time")[2].partition("<h3>")[0]
