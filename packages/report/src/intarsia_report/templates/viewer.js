"use strict";
// Sources in colours: highlight.js tells words apart, the browser's highlights paint them, and the text stays whole, so
// that a search finds it. What is never looked at is never read.
const LONGEST = 400000; // characters of one source; a longer one is shown without colours
const GROUPS = {
  keyword: "word", built_in: "word", type: "word", literal: "word", meta: "meta", string: "string", comment: "comment",
  number: "number", title: "title", section: "title",
};

// Text nodes of a source, in order: a source is one, a table of lines has one a line.
function textsOf(source) {
  const lines = source.matches("table") ? [...source.querySelectorAll("td > code")] : [source.querySelector("code")];
  return lines.map((line) => line.firstChild).filter((node) => node !== null);
}

// [start, end, group] of each word that has a colour, in a text of the language.
function wordsOf(text, language) {
  const read = document.createElement("template"); // inert: it is read, never shown
  read.innerHTML = hljs.highlight(text, { language, ignoreIllegals: true }).value;
  const words = [];
  let at = 0;
  const walk = document.createTreeWalker(read.content, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const kinds = node.parentElement === null ? "" : node.parentElement.className.replace("hljs-", "");
    const group = GROUPS[kinds.split(" ")[0]];
    if (group !== undefined) words.push([at, at + node.data.length, group]);
    at += node.data.length;
  }
  return words;
}

function colour(source) {
  const language = source.dataset.language;
  const nodes = textsOf(source);
  const text = nodes.map((node) => node.data).join("\n");
  if (hljs.getLanguage(language) === undefined || text.length > LONGEST) return;
  const starts = [];
  let at = 0;
  for (const node of nodes) at = starts.push(at) && at + node.data.length + 1;
  let k = 0;
  for (const [start, end, group] of wordsOf(text, language)) {
    while (k + 1 < nodes.length && starts[k + 1] <= start) k += 1;
    // a word over several lines is painted in each
    for (let n = k; n < nodes.length && starts[n] < end; n += 1)
      paint(group, nodes[n], Math.max(start - starts[n], 0), Math.min(end - starts[n], nodes[n].data.length));
  }
}

function paint(group, node, start, end) {
  if (start >= end) return;
  if (!CSS.highlights.has(group)) CSS.highlights.set(group, new Highlight());
  CSS.highlights.get(group).add(new StaticRange(
    { startContainer: node, startOffset: start, endContainer: node, endOffset: end }));
}

if (paints) {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries)
      if (entry.isIntersecting) {
        seen.unobserve(entry.target);
        colour(entry.target);
      }
  });
  for (const source of document.querySelectorAll("[data-language]")) seen.observe(source);
}
