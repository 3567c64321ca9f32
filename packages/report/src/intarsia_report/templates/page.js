"use strict";
// Search: every match in the page, in order. A match in something folded unfolds it. Matches are painted by the
// browser's highlights where it has them; the page itself isn't changed.
const paints = globalThis.CSS !== undefined && CSS.highlights !== undefined;
const state = { query: "", matches: [], at: -1 };

function reveal(node) {
  const start = node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
  for (let e = start.closest("details"); e; e = e.parentElement.closest("details")) e.open = true;
}

function rangeOf([node, start, end]) {
  const range = new Range();
  range.setStart(node, start);
  range.setEnd(node, end);
  return range;
}

// Not what repeats lines of programs, nor numbers of lines.
function searched(node) {
  const repeated = node.nodeType === Node.ELEMENT_NODE && node.matches(".numbers, .canvas");
  return repeated ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT;
}

function search(text) {
  state.matches = [];
  state.at = -1;
  state.query = text;
  const wanted = text.toLowerCase();
  if (wanted.trim() !== "") {
    const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT, searched);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      if (node.nodeType !== Node.TEXT_NODE) continue;
      const has = node.data.toLowerCase();
      if (has.length !== node.data.length) continue; // positions would be others
      for (let k = has.indexOf(wanted); k >= 0; k = has.indexOf(wanted, k + wanted.length))
        state.matches.push([node, k, k + wanted.length]);
    }
  }
  if (paints) {
    CSS.highlights.set("found", above(new Highlight(...state.matches.slice(0, 5000).map(rangeOf))));
    CSS.highlights.delete("here");
  }
  tell();
}

// What is found is painted over the colours of words.
function above(highlight, priority = 1) {
  highlight.priority = priority;
  return highlight;
}

function tell() {
  const n = state.matches.length;
  document.querySelector("#count").textContent =
    document.querySelector("#query").value === "" ? "" : state.at < 0 ? `${n} found` : `${state.at + 1} of ${n}`;
}

function go(step) {
  const n = state.matches.length;
  if (n === 0) return;
  state.at = state.at < 0 ? (step > 0 ? 0 : n - 1) : (state.at + step + n) % n;
  const match = state.matches[state.at];
  reveal(match[0]);
  if (paints) CSS.highlights.set("here", above(new Highlight(rangeOf(match)), 2));
  match[0].parentElement.scrollIntoView({ block: "center" });
  tell();
}

// Links to something folded.
function follow() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target === null) return;
  reveal(target);
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView({ block: "start" });
}

// A name through the levels: where it is made, what is made of the same operations, the user's lines.
function nameAt(event) {
  const at = document.caretPositionFromPoint
    ? document.caretPositionFromPoint(event.clientX, event.clientY)
    : document.caretRangeFromPoint(event.clientX, event.clientY);
  const node = at && (at.offsetNode || at.startContainer);
  if (!node || node.nodeType !== Node.TEXT_NODE) return "";
  const offset = at.offsetNode ? at.offset : at.startOffset;
  for (const found of node.data.matchAll(/%([\p{L}\p{N}_]+)/gu))
    if (found.index <= offset && offset <= found.index + found[0].length) return found[1];
  return "";
}

function show(name, graph) {
  const named = [...graph.querySelectorAll("[data-n]")].filter((e) => e.dataset.n.split(" ").includes(name));
  const origins = new Set(named.flatMap((e) => e.dataset.o.split(" ").filter(Boolean)));
  const related = [...graph.querySelectorAll("[data-n]")].filter(
    (e) => named.includes(e) || e.dataset.o.split(" ").some((o) => origins.has(o)));
  const panel = document.querySelector("#panel");
  panel.querySelector("h4").textContent = `%${name}`;
  const list = panel.querySelector("div");
  list.replaceChildren();
  const lines = new Map();
  for (const e of related)
    for (const a of e.querySelectorAll("a")) if (named.includes(e)) lines.set(a.getAttribute("href"), a.textContent);
  for (const [href, text] of lines) list.append(link(href, `your line ${text}`));
  for (const e of related) {
    const stage = e.closest("details.stage");
    const level = stage.querySelector("summary b").textContent;
    const line = e.textContent.trim();
    list.append(link(`#${e.id}`, `${level}: ${line.length > 160 ? line.slice(0, 157) + "..." : line}`));
  }
  panel.hidden = false;
}

function link(href, text) {
  const a = document.createElement("a");
  a.setAttribute("href", href);
  a.textContent = text;
  return a;
}

const form = document.querySelector("#search");
form.hidden = false;
let waiting = 0;
document.querySelector("#query").addEventListener("input", (event) => {
  clearTimeout(waiting);
  waiting = setTimeout(() => search(event.target.value), 150);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  go(1);
});
document.querySelector("#back").addEventListener("click", () => go(-1));
document.querySelector("#close").addEventListener("click", () => { document.querySelector("#panel").hidden = true; });
document.querySelector("main").addEventListener("click", (event) => {
  if (event.target.closest("a, summary")) return;
  const name = nameAt(event);
  const graph = event.target.closest(".graph");
  if (name !== "" && graph !== null) show(name, graph);
});
addEventListener("hashchange", follow);
// a link to where one already is doesn't change the hash
addEventListener("click", (event) => {
  const a = event.target.closest("a");
  if (a !== null && a.getAttribute("href") === location.hash) follow();
});
follow();
