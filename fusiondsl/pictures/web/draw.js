// Puts a layout on the screen, and the ribbon above it.

const SVG = "http://www.w3.org/2000/svg";
const BANNER = 40; // height of what stands above a graph
const READABLE = 0.7;
const FAR = 0.3; // scale below which only colours can be told apart
const SMALLEST = 0.05;

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function html(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function sign(verdict) {
  const { style, sign: mark } = VERDICTS[verdict];
  return html("span", { class: `sign ${style}`, "aria-hidden": "true" }, html("i", {}, mark));
}

class Half {
  constructor(half, element) {
    this.half = half;
    this.count = element.querySelector("h2 small");
    this.ribbon = element.querySelector(".ribbon");
    this.canvas = element.querySelector(".canvas");
    this.world = svg("g");
    this.empty = html("p", { class: "empty", hidden: "" });
    const tip = svg("marker", { id: `tip${half}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", class: "tip" }));
    this.svg = svg("svg", { role: "group", "aria-label": half ? "After" : "Before" }, svg("defs", {}, tip), this.world);
    this.banner = html("p", { class: "banner", hidden: "" });
    this.canvas.append(this.svg, this.empty, this.banner);
    this.view = { x: 0, y: 0, scale: 1 };
    this.elements = new Map();
    this.listen();
  }

  // --- panning and zooming -----------------------------------------------------------------------

  listen() {
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      from = { x: event.clientX - this.view.x, y: event.clientY - this.view.y, id: event.pointerId, moved: false, startX: event.clientX, startY: event.clientY };
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (from === null) return;
      if (!from.moved && Math.hypot(event.clientX - from.startX, event.clientY - from.startY) < 4) return;
      if (!from.moved) this.svg.setPointerCapture(from.id);
      from.moved = true;
      this.svg.classList.add("dragged");
      this.look({ ...this.view, x: event.clientX - from.x, y: event.clientY - from.y });
    });
    const end = () => {
      from = null;
      this.svg.classList.remove("dragged");
    };
    this.svg.addEventListener("pointerup", end);
    this.svg.addEventListener("pointercancel", end);
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
  }

  look(view) {
    this.view = view;
    this.world.classList.toggle("far", view.scale < FAR);
    this.world.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  }

  zoom(factor, x, y) {
    const scale = Math.min(3, Math.max(SMALLEST, this.view.scale * factor));
    const real = scale / this.view.scale;
    this.look({ scale, x: x - (x - this.view.x) * real, y: y - (y - this.view.y) * real });
  }

  size() {
    return { width: this.svg.clientWidth || 600, height: this.svg.clientHeight || 400 };
  }

  // The first of some sets of nodes that can be read when all of it is in view; else its anchor.
  fit(sets, anchor = null) {
    for (const ids of sets) {
      if (this.fitAll(ids) >= READABLE) return;
    }
    const one = this.plan.boxes.get(anchor);
    if (one !== undefined) this.centre(one, 0.8);
  }

  // All of some nodes is in view, not larger than life; the scale that takes.
  fitAll(ids) {
    const asked = new Set(ids);
    const boxes = [...asked].map((id) => this.plan.boxes.get(id)).filter(Boolean);
    if (boxes.length === 0) return 0;
    boxes.push(...this.plan.stubs.filter((stub) => asked.has(stub.of)));
    const left = Math.min(...boxes.map((b) => b.x - b.width / 2)) - 30;
    const right = Math.max(...boxes.map((b) => b.x + b.width / 2)) + 30;
    const top = Math.min(...boxes.map((b) => b.y - b.height / 2)) - 20;
    const bottom = Math.max(...boxes.map((b) => b.y + b.height / 2)) + 34;
    const { width, height } = this.size();
    const scale = Math.min(1.15, width / (right - left), (height - BANNER) / (bottom - top));
    this.centre({ x: (left + right) / 2, y: (top + bottom) / 2 }, Math.max(SMALLEST, scale));
    return scale;
  }

  centre(point, scale) {
    const { width, height } = this.size();
    this.look({ scale, x: width / 2 - point.x * scale, y: (BANNER + height) / 2 - point.y * scale });
  }

  // --- drawing -----------------------------------------------------------------------------------

  draw(plan, site) {
    this.plan = plan;
    this.elements = new Map();
    this.edges = [];
    const blobs = svg("g");
    const lines = svg("g");
    const stubs = svg("g");
    const nodes = svg("g");
    for (const edge of plan.edges) {
      const path = svg("path", { class: "edge", d: bent(edge.points), "marker-end": `url(#tip${this.half})` });
      this.edges.push({ ...edge, path });
      lines.append(path);
    }
    for (const stub of plan.stubs) {
      lines.append(svg("path", { class: "edge hidden-part", d: bent(stub.points) }));
      stubs.append(this.stub(stub));
    }
    for (const other of sitesIn(plan)) {
      if (other !== site) blobs.append(this.blob(other, "other"));
    }
    if (site !== null) blobs.append(this.blob(site, "chosen"));
    this.say(site);
    const causes = site === null ? new Map() : causesByNode(site);
    for (const box of plan.boxes.values()) {
      const drawn = this.node(box, site, causes.get(box.id));
      this.elements.set(box.id, drawn);
      nodes.append(drawn);
    }
    for (const copy of plan.copies) nodes.append(this.node(copy, site, causes.get(copy.id)));
    this.world.replaceChildren(blobs, lines, stubs, nodes);
    this.empty.hidden = plan.ids.length > 0;
    this.empty.textContent = "Nothing of this site stands here.";
  }

  node(box, site, numbers) {
    const node = this.plan.graph.nodes[box.id];
    const mine = site !== null && site.ids[this.half].includes(box.id);
    const verdict = mine ? site.verdict : mainVerdict(node, this.half);
    const marks = ["node", node.kind];
    if (verdict) marks.push("marked", VERDICTS[verdict].style);
    if (isGone(node)) marks.push("gone");
    if (isNew(node)) marks.push("new");
    const { width, height } = box;
    const round = node.kind === "input" || node.kind === "output" ? height / 2 : 7;
    const group = svg("g", { class: marks.join(" "), tabindex: -1, role: "button", "data-id": box.id, "aria-label": spoken(node, this.half, verdict), transform: `translate(${(box.x - width / 2).toFixed(1)} ${(box.y - height / 2).toFixed(1)})` });
    group.append(svg("rect", { class: "box", width, height, rx: round }));
    if (verdict) group.append(svg("rect", { class: "bar", x: 0, y: 6, width: 4, height: height - 12, rx: 2 }));
    box.lines.forEach((line, row) => {
      group.append(svg("text", { class: line.style, x: SIDE, y: 6 + ROW * row + 11 }, line.text));
    });
    if (numbers !== undefined) {
      group.append(svg("rect", { class: "cause", x: -4, y: -4, width: width + 8, height: height + 8, rx: round + 4 }));
      numbers.forEach((number, place) => {
        const badge = svg("g", { class: "badge", transform: `translate(${width - 4 - 20 * place} -4)` });
        badge.append(svg("circle", { r: 9 }), svg("text", { y: 4 }, String(number)));
        group.append(badge);
      });
    }
    return group;
  }

  stub(stub) {
    const group = svg("g", { class: "stub", tabindex: -1, role: "button", "data-stub": stub.key, "aria-label": `show ${stub.text}`, transform: `translate(${(stub.x - stub.width / 2).toFixed(1)} ${(stub.y - stub.height / 2).toFixed(1)})` });
    group.append(svg("rect", { width: stub.width, height: stub.height, rx: 10 }));
    group.append(svg("text", { x: stub.width / 2, y: 14 }, stub.text));
    return group;
  }

  // What a site covers, as one shape: its nodes, and the edges between them.
  blob(site, style) {
    const ids = new Set(site.ids[this.half]);
    const group = svg("g", { class: `blob ${style} ${VERDICTS[site.verdict].style}` });
    for (const edge of this.plan.edges) {
      if (ids.has(edge.from) && ids.has(edge.to)) group.append(svg("path", { d: bent(edge.points) }));
    }
    for (const id of ids) {
      const box = this.plan.boxes.get(id);
      if (box === undefined) continue;
      group.append(svg("rect", { x: box.x - box.width / 2 - 13, y: box.y - box.height / 2 - 13, width: box.width + 26, height: box.height + 26, rx: 16 }));
    }
    return group;
  }

  // What is chosen, above the graph.
  say(site) {
    this.banner.hidden = site === null;
    if (site === null) return;
    const { style } = VERDICTS[site.verdict];
    const first = site.causes[0] ? `${site.causes[0].code}: ${site.causes[0].message}` : VERDICTS[site.verdict].says;
    this.banner.className = `banner ${style}`;
    this.banner.replaceChildren(sign(site.verdict), html("b", {}, site.rule.name), html("span", {}, `at ${site.node}`), html("span", {}, first));
  }

  // --- the ribbon --------------------------------------------------------------------------------

  drawRibbon(graph, site) {
    const order = graph.order[this.half];
    const total = Math.max(1, order.length);
    const all = svg("svg", { viewBox: `0 0 ${total} 14`, preserveAspectRatio: "none", "aria-hidden": "true" });
    all.append(svg("rect", { class: "all", width: total, height: 14, rx: 0 }));
    for (const id of this.plan.ids) {
      all.append(svg("rect", { class: "here", x: graph.nodes[id].place[this.half], y: 11, width: 1, height: 3 }));
    }
    const thick = Math.max(1, total / 500);
    for (const verdict of [...RANK].reverse()) {
      const marks = graph.sites.filter((other) => other.verdict === verdict);
      const places = new Set(marks.flatMap((other) => other.ids[this.half].map((id) => graph.nodes[id].place[this.half])));
      if (places.size === 0) continue;
      const path = [...places].map((place) => `M${place + 0.5} 0v10`).join("");
      all.append(svg("path", { class: VERDICTS[verdict].style, "stroke-width": thick, d: path }));
    }
    if (site !== null && site.ids[this.half].length > 0) {
      const places = site.ids[this.half].map((id) => graph.nodes[id].place[this.half]);
      const first = Math.min(...places);
      const wide = Math.max(...places) - first + 1;
      all.append(svg("rect", { class: "chosen", "vector-effect": "non-scaling-stroke", x: first, y: -2, width: Math.max(thick, wide), height: 16 }));
    }
    this.ribbon.replaceChildren(all);
  }

  // --- light -------------------------------------------------------------------------------------

  // The node, and its copies where it is an input.
  allOf(id) {
    return this.world.querySelectorAll(`[data-id="${id}"]`);
  }

  light(id) {
    for (const element of this.world.querySelectorAll(".lit")) element.classList.remove("lit");
    if (id === null) return;
    for (const element of this.allOf(id)) element.classList.add("lit");
    for (const edge of this.edges) {
      if (edge.from === id || edge.to === id) edge.path.classList.add("lit");
    }
  }
}

function sitesIn(plan) {
  const found = new Set();
  for (const id of plan.ids) {
    for (const site of plan.graph.nodes[id].sites) {
      if (site.verdict !== "taken" && site.ids[plan.half].includes(id)) found.add(site);
    }
  }
  return found;
}

// Numbers of causes by the node to look at; no number twice at one node.
function causesByNode(site) {
  const found = new Map();
  site.causes.forEach((cause, index) => {
    for (const id of cause.ids) found.set(id, [...(found.get(id) ?? []), index + 1]);
  });
  return found;
}

function spoken(node, half, verdict) {
  const { op, values } = node.facts[half];
  return [node.name, op, values.map(plainType).join(", "), verdict].filter(Boolean).join(", ");
}
