"use strict";
// Drawings of programs, made when they are opened: a box for each line that makes something, an arrow to each line that
// takes it. dagre says where; its time grows faster than the number of boxes, so a long program is drawn in parts.
const MOST = 200; // boxes of one drawing
const WIDE = 6.7; // pixels of a character at the size of the style
const LONGEST_LABEL = 34; // characters

function svg(name, attributes, ...inside) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

function shortened(text) {
  return text.length > LONGEST_LABEL ? `${text.slice(0, LONGEST_LABEL - 1)}\u2026` : text;
}

// The name that a line makes, what makes it, and the kernel that does.
function labelsOf(line) {
  const names = line.dataset.n.split(" ").filter(Boolean).map((name) => `%${name}`).join(" ");
  const made = line.textContent.match(/ = ([\w.]+)(?:\[[^\]]*\])?(?: ([\w.]+))?/u);
  const what = made === null ? (names === "" ? "" : "input") : [made[1], made[2]].filter(Boolean).join(" ");
  const kernel = kernelOf(line);
  return [names || "return", what, kernel === null ? "" : `kernel ${kernel.dataset.label}`].filter(Boolean).map(shortened);
}

function kernelOf(line) {
  return line.dataset.k === undefined ? null : document.getElementById(`${line.closest(".graph").id}-k${line.dataset.k}`);
}

// The lines of a program's graph that make something, and the one that returns; launches and sources beside it aren't of it.
function boxesOf(drawing) {
  return [...document.getElementById(drawing.dataset.of).querySelectorAll("[data-u]")];
}

function laidOut(lines, prefix) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ nodesep: 14, ranksep: 26, marginx: 6, marginy: 6 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const line of lines) {
    const labels = labelsOf(line);
    const width = 14 + WIDE * Math.max(...labels.map((label) => label.length));
    graph.setNode(line.id, { line, labels, width, height: 10 + 15 * labels.length });
  }
  for (const line of lines)
    for (const number of line.dataset.u.split(" ").filter(Boolean))
      if (graph.hasNode(`${prefix}-${number}`)) graph.setEdge(`${prefix}-${number}`, line.id);
  dagre.layout(graph);
  return graph;
}

function boxOf({ line, labels, x, y, width, height }) {
  const box = svg("a", { href: `#${line.id}`, class: line.className || "plain", transform: `translate(${x - width / 2} ${y - height / 2})` });
  box.append(svg("title", {}, line.textContent.trim()), svg("rect", { width, height, rx: 4 }));
  labels.forEach((label, k) => box.append(svg("text", { x: 7, y: 17 + 15 * k }, label)));
  return box;
}

function arrowOf(points) {
  const at = points.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`);
  return svg("path", { d: `M${at.join("L")}`, "marker-end": "url(#arrow)" });
}

function pictureOf(graph, scale) {
  const { width, height } = graph.graph();
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width: width * scale, height: height * scale, role: "img" });
  const head = svg("marker", { id: "arrow", viewBox: "0 0 6 6", refX: 6, refY: 3, markerWidth: 6, markerHeight: 6, orient: "auto" });
  head.append(svg("path", { d: "M0 0L6 3L0 6z" }));
  picture.append(svg("defs", {}, head));
  for (const edge of graph.edges()) picture.append(arrowOf(graph.edge(edge).points));
  for (const name of graph.nodes()) picture.append(boxOf(graph.node(name)));
  return picture;
}

// The kernels of a drawing, with what each costs.
function legendOf(lines) {
  const kernels = new Map();
  for (const line of lines) if (kernelOf(line) !== null) kernels.set(line.dataset.k, kernelOf(line));
  return [...kernels.values()].map((kernel) => {
    const row = document.createElement("li");
    const chip = link(`#${kernel.id}`, kernel.dataset.label);
    chip.className = kernel.querySelector(".chip").className;
    row.append(chip, ` ${kernel.dataset.cost}`);
    return row;
  });
}

function button(text, title, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.title = title;
  made.addEventListener("click", act);
  return made;
}

function draw(drawing, first) {
  const all = boxesOf(drawing);
  const lines = all.slice(first, first + MOST);
  const graph = laidOut(lines, drawing.dataset.of);
  let scale = 1;
  const sheet = document.createElement("div");
  const resize = (by) => { scale = by === 0 ? Math.min(1, sheet.clientWidth / graph.graph().width) : scale * by; show(); };
  const show = () => sheet.replaceChildren(pictureOf(graph, scale));
  const bar = document.createElement("p");
  bar.append(button("\u2212", "Smaller", () => resize(0.8)), button("+", "Larger", () => resize(1.25)), button("Fit", "Fit the width", () => resize(0)));
  if (all.length > MOST) bar.append(...turning(drawing, first, all.length));
  const legend = document.createElement("ul");
  legend.append(...legendOf(lines));
  sheet.className = "sheet";
  drawing.querySelector(".canvas").replaceChildren(bar, legend, sheet);
  show();
}

// Buttons to the other parts of a long program, and what is shown of it.
function turning(drawing, first, n) {
  const last = Math.min(first + MOST, n);
  const said = ` ${first + 1} to ${last} of ${n} boxes, ${MOST} at a time; arrows from other parts are left out. `;
  const before = button("Before", "The part before", () => draw(drawing, first - MOST));
  const after = button("Next", "The next part", () => draw(drawing, first + MOST));
  before.disabled = first === 0;
  after.disabled = last === n;
  return [said, before, after];
}

for (const drawing of document.querySelectorAll("details.drawing")) {
  drawing.hidden = boxesOf(drawing).length === 0;
  drawing.addEventListener("toggle", () => {
    if (drawing.open && drawing.querySelector("svg") === null) draw(drawing, 0);
  });
}
// a box says where its line comes from and what became of it, as a name in a program does
document.querySelector("main").addEventListener("click", (event) => {
  const box = event.target.closest("svg a");
  if (box === null) return;
  event.preventDefault();
  const line = document.getElementById(box.getAttribute("href").slice(1));
  const name = line.dataset.n.split(" ")[0];
  if (name === "") location.hash = line.id;
  else show(name, line.closest(".graph"));
});
