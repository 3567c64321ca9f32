"""Pages of reports in a headless Chromium: no error, nothing loaded, no sideways scrolling, everything found."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn

import intarsia

browsers = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
WIDTHS = (1280, 390)
HOSTILE = "<script>document.title='broken'</script>"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(16, 64), nn.Linear(64, 16), nn.LayerNorm(16)

    def forward(self, x):
        y = self.norm(x + self.second(torch.nn.functional.gelu(self.first(x))))
        print(end="")
        return torch.softmax(y * 2, -1).square().sum()


@pytest.fixture(scope="module")
def told():
    return intarsia.explain(Net())(torch.randn(4, 16, requires_grad=True))


@pytest.fixture(scope="module")
def path(told, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "out.html"
    told.html(path)
    return path


@pytest.fixture(scope="module")
def chromium():
    with browsers.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(params=WIDTHS)
def opened(request, chromium, path):
    """The page, opened; nothing may have gone wrong in the end."""
    page = chromium.new_page(viewport={"width": request.param, "height": 844})
    wrong, loaded = [], []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: loaded.append(asked.url))
    page.goto(path.as_uri())
    yield page
    page.close()
    assert wrong == [] and loaded == [path.as_uri()]


def until(page, condition, *given):
    """Wait for a condition; not by the browser's own means, which the page's policy forbids."""
    for _ in range(200):
        if page.evaluate(condition, *given):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never: {condition}")


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def test_nothing_scrolls_sideways(opened):
    assert overflow(opened) <= 0
    opened.evaluate("for (const folded of document.querySelectorAll('details')) folded.open = true")
    assert overflow(opened) <= 0


def test_every_level_is_found_by_search(opened, told):
    for number, graph in enumerate(told.graphs):
        for at, stage in enumerate(graph.stages):
            if stage.after == stage.before or not stage.after:
                continue
            wanted = stage.after[0].splitlines()[0]  # its level
            opened.fill("#query", wanted)
            until(opened, "wanted => state.query === wanted", wanted)
            found = opened.evaluate(
                "id => state.matches.some(([node]) => node.parentElement.closest('#' + id) !== null)",
                f"g{number}-s{at}",
            )
            assert found, (number, stage.name)


def stage_of(told, name):
    """Id of a stage of the first graph."""
    return next(f"g0-s{at}" for at, stage in enumerate(told.graphs[0].stages) if stage.name == name)


def test_a_match_in_something_folded_is_shown(opened, told):
    opened.fill("#query", "// level: Kernels")
    until(opened, "state.query === '// level: Kernels'")
    assert not opened.locator(f"#{stage_of(told, 'fuse')}").evaluate("e => e.open")
    opened.click("form button[type=submit]")
    assert opened.inner_text("#count").startswith("1 of ")
    assert opened.locator("details.stage[open] .ir", has_text="// level: Kernels").first.is_visible()


def test_links_lead_to_what_is_folded(opened, told):
    kernel = opened.locator("details.kernel").first
    assert not kernel.evaluate("e => e.open")
    opened.locator("#lines a.chip").first.click()
    until(opened, "document.querySelector('details.kernel').open")
    assert told.graphs[0].details[0].source.splitlines()[0] in kernel.inner_text()


def test_a_name_is_followed_through_the_levels(opened, told):
    lower = stage_of(told, "lower")
    opened.evaluate(f"location.hash = '#{lower}'")
    until(opened, f"document.querySelector('#{lower}').open")
    name = opened.evaluate(f"""
        [...document.querySelectorAll("#{lower} [data-n]")].find(
            (e) => e.dataset.o !== "" && !e.textContent.startsWith("graph")).dataset.n
    """)
    spot = opened.evaluate(
        """([name, lower]) => {
          const line = document.querySelector(`#${lower} [data-n="${name}"]`);
          line.scrollIntoView({ block: "center" });
          const text = document.createTreeWalker(line, NodeFilter.SHOW_TEXT).nextNode();
          const range = new Range();
          range.setStart(text, text.data.indexOf("%"));
          range.setEnd(text, text.data.indexOf("%") + 4);
          const box = range.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }""",
        [name, lower],
    )
    opened.mouse.click(*spot)
    panel = opened.locator("#panel")
    assert panel.is_visible() and f"%{name}" in panel.inner_text()
    listed = panel.locator("a").all_inner_texts()
    assert listed[0].startswith("your line ") and any(text.startswith("captured: ") for text in listed)
    assert overflow(opened) <= 0
    panel.locator("a").first.click()
    until(opened, "location.hash.startsWith('#u')")


def drawn(opened, drawing):
    """Open a drawing; return its boxes as (line, labels, class), and how many arrows it has."""
    drawing.locator("summary").click()
    until(opened, "id => document.querySelector(`[data-of='${id}'] svg`) !== null", drawing.get_attribute("data-of"))
    return drawing.evaluate("""e => [
      [...e.querySelectorAll("svg a")].map((a) => [
        a.getAttribute("href"), [...a.querySelectorAll("text")].map((t) => t.textContent), a.getAttribute("class")]),
      e.querySelectorAll("svg > path").length]""")


def test_kernels_are_coloured_over_their_graph_with_what_they_cost(opened, told):
    drawing = opened.locator("#g0 > details.drawing").first
    boxes, n_arrows = drawn(opened, drawing)
    made = [name for detail in told.graphs[0].details if detail.program == 0 for name in detail.buffers]
    shown = {labels[0]: (labels[-1], kind) for _, labels, kind in boxes}
    for number, detail in enumerate(told.graphs[0].details):
        for name in detail.buffers if detail.program == 0 else ():
            label = f"%{name}" if len(name) < 34 else f"%{name[:32]}\u2026"
            assert shown[label] == (f"kernel 0.{number}", f"k{number % 8}")
    assert len(boxes) >= len(made) and n_arrows >= len(made)
    assert not any(labels[0].startswith("%b1") for _, labels, _ in boxes), "launches beside the graph are drawn"
    costs = drawing.locator("ul").inner_text()
    assert f"{told.graphs[0].kernels[0].bytes_read / 1024:,.1f} KB read" in costs
    assert f"{told.graphs[0].details[0].predicted_us:.2f} µs predicted" in costs
    assert overflow(opened) <= 0
    spots = drawing.evaluate("""e => [...e.querySelectorAll("svg rect")].map((r) => r.getBoundingClientRect()).map(
      (b) => [b.x, b.y, b.right, b.bottom])""")
    apart = [a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1] for a in spots for b in spots if a is not b]
    assert all(apart), "boxes lie over each other"


def test_each_level_has_a_drawing_whose_arrows_are_those_of_its_text(opened, told):
    for name in ("captured", "functionalize", "lower", "fuse"):
        stage = "g0-captured" if name == "captured" else stage_of(told, name)
        opened.evaluate(f"document.getElementById('{stage}').open = true")
        drawing = opened.locator(f"#{stage} details.drawing").first
        boxes, n_arrows = drawn(opened, drawing)
        expected = drawing.evaluate("""e => [...document.getElementById(e.dataset.of).querySelectorAll("[data-u]")].map(
          (line) => line.dataset.u.split(" ").filter(Boolean).length)""")
        assert len(boxes) == len(expected) > 2 and n_arrows == sum(expected) > 2
        assert overflow(opened) <= 0


def test_a_box_leads_to_the_users_line_and_the_text_of_each_level(opened):
    drawing = opened.locator("#g0 > details.drawing").first
    boxes, _ = drawn(opened, drawing)
    line, labels, _ = next(box for box in boxes if len(box[1]) == 3)
    drawing.locator(f'svg a[href="{line}"]').dispatch_event("click")
    panel = opened.locator("#panel")
    assert panel.is_visible() and labels[0].rstrip("\u2026") in panel.inner_text()
    listed = panel.locator("a")
    assert listed.all_inner_texts()[0].startswith("your line ")
    assert line in listed.evaluate_all("found => found.map((a) => a.getAttribute('href'))")


def test_a_long_program_is_drawn_in_parts_and_says_so(chromium, tmp_path):
    def long(x):
        for _ in range(250):
            x = torch.sin(x) @ x
        return x

    intarsia.explain(long, backend="loops")(torch.eye(3)).html(tmp_path / "long.html")
    opened = chromium.new_page()
    opened.goto((tmp_path / "long.html").as_uri())
    opened.evaluate("document.getElementById('g0-captured').open = true")
    drawing = opened.locator("#g0-captured details.drawing")
    boxes, _ = drawn(opened, drawing)
    assert len(boxes) == 200 and "1 to 200 of 502 boxes" in drawing.inner_text()
    drawing.get_by_role("button", name="Next").click()
    drawing.get_by_role("button", name="Next").click()
    assert "401 to 502 of 502 boxes" in drawing.inner_text() and drawing.locator("svg a").count() == 102
    assert drawing.get_by_role("button", name="Next").is_disabled()
    opened.close()


def test_sources_have_colours_and_numbers_and_stay_whole_for_a_search(opened, told):
    kernel = opened.locator("details.kernel").first
    kernel.evaluate("e => { e.open = true; e.scrollIntoView(); }")
    until(opened, "CSS.highlights.has('word') && CSS.highlights.has('number')")
    source = told.graphs[0].details[0].source
    assert kernel.locator(".numbers").inner_text().split() == [str(n + 1) for n in range(source.count("\n") + 1)]
    until(
        opened,
        """() => [...CSS.highlights.get("word")].some(
      (range) => range.startContainer.parentElement.closest("details.kernel .code") !== null)""",
    )
    words = opened.evaluate("""() => [...CSS.highlights.get("word")].filter(
      (range) => range.startContainer.parentElement.closest("details.kernel .code") !== null).map(
      (range) => range.startContainer.data.slice(range.startOffset, range.endOffset))""")
    assert {"static", "void"} <= set(words) and all(word in source for word in words)
    wanted = source.splitlines()[0]
    opened.fill("#query", wanted)
    until(opened, "wanted => state.query === wanted && state.matches.length > 0", wanted)


def test_the_users_lines_are_coloured(opened):
    opened.locator("#lines").scroll_into_view_if_needed()
    until(opened, "CSS.highlights.has('word')")
    words = opened.evaluate("""() => [...CSS.highlights.get("word")].filter(
      (range) => range.startContainer.parentElement.closest("#lines") !== null).map(
      (range) => range.startContainer.data.slice(range.startOffset, range.endOffset))""")
    assert "return" in words


def test_a_name_with_a_script_in_it_runs_nothing(chromium, told, tmp_path):
    from intarsia_report import page

    path = tmp_path / "out.html"
    path.write_text(page(told, title=HOSTILE, line_of=lambda file, line: HOSTILE), encoding="utf-8")
    opened = chromium.new_page()
    opened.goto(path.as_uri())
    assert opened.title() == f"{HOSTILE}: what Intarsia compiled" and opened.inner_text("h1") == HOSTILE
    path.write_text(path.read_text(encoding="utf-8").replace("<h1>", f"<h1>{HOSTILE}"), encoding="utf-8")
    opened.goto(path.as_uri())  # even if it weren't escaped
    assert "what Intarsia compiled" in opened.title()
    opened.close()
