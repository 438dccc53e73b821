// What tests ask of an open page.

const all = (query, root = document) => [...root.querySelectorAll(query)];
const half = (id) => document.getElementById(id);
const nameOf = (node) => node.querySelector(".name").textContent;
const node = (id, name) => all(`#${id} .node`).find((each) => nameOf(each) === name);
const row = (name) => all("tr.site").find((each) => nameOf(each) === name);
const rows = () => all("tr.site").map(nameOf);
const selected = () => nameOf(document.querySelector("tr.site[aria-selected=true]"));

function box(element) {
  const { left, top, right, bottom } = element.getBoundingClientRect();
  return { left, top, right, bottom };
}

function middle(element) {
  const { left, top, right, bottom } = box(element);
  return [(left + right) / 2, (top + bottom) / 2];
}

const inside = (a, b, by = 0) =>
  a.left >= b.left - by && a.right <= b.right + by && a.top >= b.top - by && a.bottom <= b.bottom + by;
const apart = (a, b) =>
  a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;

// Nodes of a half that are in view.
function inView(id) {
  const canvas = box(document.querySelector(`#${id} .canvas`));
  return all(`#${id} .node`).filter((each) => inside(box(each), canvas, 2)).map(nameOf);
}

function marks(id) {
  return Object.fromEntries(all(`#${id} .node`).map((each) => [nameOf(each), [...each.classList]]));
}

function numbers(id) {
  const numbered = all(`#${id} .node`).filter((each) => each.querySelector(".badge"));
  return Object.fromEntries(numbered.map((each) => [nameOf(each), each.querySelector(".badge").textContent]));
}

function overlapping(id) {
  const boxes = all(`#${id} .box`).map(box);
  return boxes.filter((a, i) => boxes.some((b, j) => i < j && !apart(a, b))).length;
}

// Texts that stick out of their nodes.
function sticking(id) {
  const texts = all(`#${id} .node`).flatMap((each) =>
    all("text.name, text.op, text.value", each).map((text) => [box(text), box(each.querySelector(".box"))]));
  return texts.filter(([text, around]) => !inside(text, around, 1)).length;
}

function table() {
  return all("tr.site").map((each) => {
    const first = each.querySelector(".first");
    return [each.querySelector("td").title, nameOf(each), first ? first.textContent : ""];
  });
}

// --- contrast of texts with what is behind them --------------------------------------------------

const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function light(colour) {
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [less, more] = [light(a), light(b)].sort((x, y) => x - y);
  return (more + 0.05) / (less + 0.05);
}

function ground(element) {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  }
  return "white";
}

function contrasts() {
  const found = {};
  const plain = ".node:not(.marked, .input, .output)";
  for (const query of [".node.fires", ".node.fused", ".node.close", ".node.input", plain]) {
    const drawn = document.querySelector(query);
    const behind = getComputedStyle(drawn.querySelector(".box")).fill;
    for (const part of all("text.name, text.op", drawn)) {
      found[`${query} ${part.classList}`] = contrast(getComputedStyle(part).fill, behind);
    }
  }
  const texts = ["#counts", ".about", ".first", ".details li", ".details .where", ".details pre",
    ".code", ".number", ".banner b", ".banner span:last-child", "#legend span", "#note", ".half small"];
  for (const query of texts) {
    const element = document.querySelector(query);
    found[query] = contrast(getComputedStyle(element).color, ground(element));
  }
  return found;
}
