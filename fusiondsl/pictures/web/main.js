// What is chosen and drawn, and what a person does with it.

const KEYS = [
  ["\u2191 \u2193 or k j", "the site before, the next site"],
  ["/", "search rules, nodes, ops and causes; Enter goes to the first"],
  ["1 2 3", "draw this site, all sites, the whole graph"],
  ["[ ]", "draw less or more around"],
  ["f", "fit what is drawn"],
  ["+ \u2212", "zoom"],
  ["g", "into the graph: arrows go from node to node, Enter holds a node's card, e brings in what is hidden beside it"],
  ["t", "light or dark"],
  ["Esc", "let go"],
];

class App {
  constructor() {
    this.graphs = DATA.graphs.map(readGraph);
    this.halves = ["before", "after"].map((id, half) => new Half(half, document.getElementById(id)));
    this.card = document.getElementById("card");
    this.list = new List(this);
    this.held = null;
    this.listen();
    this.open(0);
  }

  // --- one graph ---------------------------------------------------------------------------------

  open(index) {
    this.graph = this.graphs[index];
    this.extra = new Set();
    this.node = null;
    this.distance = 1;
    this.site = this.graph.sites[0] ?? null;
    this.mode = this.firstMode();
    document.getElementById("graph").selectedIndex = index;
    this.drawCounts();
    this.list.drawVerdicts();
    this.list.draw();
    this.redraw();
  }

  firstMode() {
    if (this.graph.nodes.length <= FEW) return "whole";
    return this.graph.sites.length > 0 && this.isAll() && this.aroundSites(1).size <= FEW ? "sites" : "site";
  }

  drawCounts() {
    const [before, after] = this.graph.order.map((ids) => ids.length);
    const parts = [html("b", {}, `${before.toLocaleString("en")} \u2192 ${after.toLocaleString("en")}`), " nodes"];
    for (const part of this.graph.target) parts.push(` \u00b7 ${part}`);
    document.getElementById("counts").replaceChildren(...parts);
    this.halves.forEach((half, index) => {
      half.count.textContent = howMany(index ? after : before, "node");
    });
  }

  // --- what is drawn -----------------------------------------------------------------------------

  // The sites nearest to the chosen one, as many as can be drawn beside each other.
  aroundSites(steps) {
    const found = new Set();
    for (const site of this.nearby()) {
      const more = around(this.graph, [...site.before, ...site.after], steps);
      if (found.size > 0 && found.size + more.size > MANY_SITES) break;
      for (const id of more) found.add(id);
    }
    return found;
  }

  nearby() {
    const place = (site) => this.graph.nodes[site.before[0] ?? site.after[0]]?.place[site.before.length > 0 ? 0 : 1] ?? 0;
    const here = this.site === null ? 0 : place(this.site);
    const sites = this.graph.sites.filter((site) => site.verdict !== "taken");
    return sites.sort((a, b) => Math.abs(place(a) - here) - Math.abs(place(b) - here));
  }

  // Whether those are all there are.
  isAll() {
    const drawn = this.aroundSites(this.distance);
    return this.nearby().every((site) => site.before.every((id) => drawn.has(id)));
  }

  wanted() {
    if (this.mode === "whole") return new Set(this.graph.nodes.map((node) => node.id));
    const seeds = this.mode === "sites" ? this.aroundSites(this.distance) : around(this.graph, this.seeds(), this.distance);
    return new Set([...seeds, ...this.extra]);
  }

  // The chosen site, with what its causes are about; or the chosen node.
  seeds() {
    if (this.node !== null) return [this.node];
    if (this.site === null) return this.graph.order[0].slice(0, 1);
    return [...this.site.before, ...this.site.after, ...this.site.causes.flatMap((cause) => cause.ids)];
  }

  redraw(keepView = false) {
    const wanted = this.wanted();
    const plans = this.halves.map((half) => layout(this.graph, half.half, wanted));
    plans.forEach((plan, index) => {
      this.halves[index].draw(plan, this.site);
      this.halves[index].drawRibbon(this.graph, this.site);
    });
    this.drawTools(plans);
    this.hold(null);
    if (!keepView) this.fit();
  }

  drawTools(plans) {
    const press = (id, on) => document.getElementById(id).setAttribute("aria-pressed", on);
    press("show-site", this.mode === "site" && this.node === null);
    press("show-sites", this.mode === "sites");
    document.getElementById("show-sites").textContent = this.isAll() ? "All sites" : "Sites nearby";
    press("show-whole", this.mode === "whole");
    const whole = document.getElementById("show-whole");
    whole.disabled = this.graph.nodes.length > MOST_DRAWN;
    whole.title = whole.disabled ? `More than ${MOST_DRAWN} nodes are not drawn at once` : "Every node (3)";
    document.getElementById("show-site").disabled = this.site === null;
    document.getElementById("show-sites").disabled = this.graph.sites.length === 0;
    document.getElementById("distance").textContent = this.mode === "whole" ? "all" : howMany(this.distance, "step");
    document.getElementById("fewer").disabled = this.mode === "whole" || this.distance === 0;
    document.getElementById("more").disabled = this.mode === "whole" || this.distance === 9;
    const left = Math.max(...plans.map((plan) => plan.left));
    const drawn = plans[0].ids.length;
    const part = drawn < this.graph.order[0].length ? `${drawn.toLocaleString("en")} of ${howMany(this.graph.order[0].length, "node")} drawn` : "every node drawn";
    const notes = this.graph.notes.map((note) => ` \u00b7 ${note}`).join("");
    document.getElementById("note").title = notes;
    document.getElementById("note").textContent = left > 0 ? `${part}; ${howMany(left, "more node")} would be too many: choose one site` : part + notes;
  }

  resized() {
    this.hold(null);
    this.fit();
  }

  // All that is drawn; unless asked for just that, only what matters of what would be too small.
  fit(all = false) {
    for (const half of this.halves) {
      const centre = this.centre(half);
      if (all || centre.length === 0) half.fitAll(half.plan.ids);
      else half.fit([half.plan.ids, this.beside(centre, half), centre], this.anchor(half));
    }
  }

  centre(half) {
    if (this.node !== null) return half.plan.boxes.has(this.node) ? [this.node] : [];
    return this.site === null ? [] : this.site.ids[half.half];
  }

  // The node to look at where not all can be.
  anchor(half) {
    if (this.node !== null) return this.node;
    if (this.site === null) return null;
    const ids = this.site.ids[half.half];
    return ids.find((id) => this.graph.nodes[id].name === this.site.node) ?? ids[0] ?? null;
  }

  beside(ids, half) {
    const near = ids.flatMap((id) => [id, ...this.graph.nodes[id].facts[half.half].inputs, ...this.graph.nodes[id].users[half.half]]);
    return [...new Set(near)];
  }

  show(mode) {
    if (mode === "whole" && this.graph.nodes.length > MOST_DRAWN) return;
    if (mode !== "whole" && this.graph.sites.length === 0) return;
    this.mode = mode;
    this.node = null;
    this.extra.clear();
    this.redraw();
  }

  spread(by) {
    if (this.mode === "whole") return;
    this.distance = Math.min(9, Math.max(0, this.distance + by));
    this.redraw();
  }

  // --- going to places ---------------------------------------------------------------------------

  select(site) {
    const drawn = this.halves.every((half) => site.ids[half.half].every((id) => half.plan.boxes.has(id)));
    this.site = site;
    this.node = null;
    if (!drawn) {
      if (this.mode === "whole") this.mode = "site";
      this.extra.clear();
    }
    this.list.draw();
    this.list.reveal();
    if (this.mode === "site" || !drawn) this.redraw();
    else {
      this.redraw(true);
      for (const half of this.halves) half.fit([this.beside(site.ids[half.half], half), site.ids[half.half]], this.anchor(half));
    }
  }

  goTo(id) {
    const drawn = this.halves.some((half) => half.plan.boxes.has(id));
    if (!drawn) {
      this.node = id;
      this.mode = "site";
      this.extra.clear();
      this.redraw();
    }
    for (const half of this.halves) {
      if (half.plan.boxes.has(id)) half.fit([this.beside([id], half)], id);
    }
    this.hold(id);
  }

  expand(ids, from) {
    for (const id of ids.slice(0, BY_CLICK)) this.extra.add(id);
    const kept = this.halves.map((half) => ({ half, box: half.plan.boxes.get(from) }));
    const places = kept.map(({ half, box }) => box && { x: box.x * half.view.scale + half.view.x, y: box.y * half.view.scale + half.view.y });
    this.redraw(true);
    // What was clicked stays where it was on the screen.
    kept.forEach(({ half }, index) => {
      const box = half.plan.boxes.get(from);
      if (!box || !places[index]) return;
      half.look({ ...half.view, x: places[index].x - box.x * half.view.scale, y: places[index].y - box.y * half.view.scale });
    });
  }

  // --- the card ----------------------------------------------------------------------------------

  fill(id, half) {
    const node = this.graph.nodes[id];
    const { values, line } = node.facts[half];
    const rows = [];
    const row = (name, value) => value && rows.push(html("dt", {}, name), html("dd", {}, value));
    values.slice(0, 8).forEach((value, index) => row(values.length > 1 ? `value ${index}` : "value", value));
    if (values.length > 8) row("", howMany(values.length - 8, "more value"));
    row("source", line);
    const users = node.users[half].length;
    row("used by", users === 0 ? "nothing" : howMany(users, "node"));
    if (isNew(node)) row("", "written by a rule");
    else if (isGone(node)) row("", "gone afterwards");
    const parts = [html("h3", {}, node.name), html("div", { class: "does" }, does(node, half)), html("dl", {}, ...rows)];
    for (const site of node.sites.filter((other) => other.ids[half].includes(id)).slice(0, 6)) {
      const cause = site.causes[0];
      parts.push(html("div", { class: "site" }, sign(site.verdict), html("span", {}, `${site.rule.name}: ${cause ? `${cause.code}: ${cause.message}` : VERDICTS[site.verdict].says}`)));
    }
    this.card.replaceChildren(...parts);
  }

  showCard(id, half, beside) {
    this.fill(id, half);
    this.card.hidden = false;
    this.card.style.left = this.card.style.top = "0px";
    const { left, top } = placeBeside(beside, this.card.getBoundingClientRect());
    this.card.style.left = `${left}px`;
    this.card.style.top = `${top}px`;
    for (const each of this.halves) each.light(id);
  }

  hideCard() {
    if (this.held !== null) return;
    this.card.hidden = true;
    for (const half of this.halves) half.light(null);
  }

  // A held card stays, so that its text can be copied.
  hold(id, half = null, at = null) {
    for (const element of document.querySelectorAll(".held")) element.classList.remove("held");
    this.held = id;
    if (id === null) {
      this.hideCard();
      return;
    }
    const where = half ?? this.halves.find((each) => each.elements.has(id));
    const element = at ?? where?.elements.get(id);
    if (!element) {
      this.hold(null);
      return;
    }
    for (const each of this.halves) {
      for (const shown of each.allOf(id)) shown.classList.add("held");
    }
    this.showCard(id, where.half, element.getBoundingClientRect());
    this.card.classList.add("held");
  }

  // --- listening ---------------------------------------------------------------------------------

  listen() {
    const click = (id, action) => document.getElementById(id).addEventListener("click", action);
    click("show-site", () => this.show("site"));
    click("show-sites", () => this.show("sites"));
    click("show-whole", () => this.show("whole"));
    click("fewer", () => this.spread(-1));
    click("more", () => this.spread(1));
    click("fit", () => this.fit(true));
    click("theme", () => this.theme());
    click("keys", () => this.help());
    click("close-help", () => document.getElementById("help").close());
    for (const half of this.halves) this.listenTo(half);
    document.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resized()).observe(document.getElementById("halves"));
    const choice = document.getElementById("graph");
    for (const graph of this.graphs) choice.append(html("option", {}, `${graph.name} (${howMany(graph.order[0].length, "node")}, ${howMany(graph.sites.length, "site")})`));
    choice.addEventListener("change", () => this.open(choice.selectedIndex));
    document.getElementById("which").hidden = this.graphs.length < 2;
    document.getElementById("help").querySelector("dl").append(...KEYS.flatMap(([key, does]) => [html("dt", {}, html("kbd", {}, key)), html("dd", {}, does)]));
    document.getElementById("legend").append(...legend());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.nameTheme());
    this.nameTheme();
  }

  listenTo(half) {
    const nodeOf = (event) => event.target.closest?.(".node");
    half.svg.addEventListener("pointerover", (event) => {
      const node = nodeOf(event);
      if (node && this.held === null) this.showCard(Number(node.dataset.id), half.half, node.getBoundingClientRect());
    });
    half.svg.addEventListener("pointerout", (event) => {
      if (nodeOf(event)) this.hideCard();
    });
    half.svg.addEventListener("click", (event) => {
      const stub = event.target.closest(".stub");
      const node = nodeOf(event);
      if (stub) this.openStub(half, stub);
      else if (node) this.hold(Number(node.dataset.id), half, node);
      else this.hold(null);
    });
    half.svg.addEventListener("focusin", (event) => {
      const node = nodeOf(event);
      if (node && this.held === null) this.showCard(Number(node.dataset.id), half.half, node.getBoundingClientRect());
    });
    half.svg.addEventListener("focusout", () => this.hideCard());
    half.ribbon.addEventListener("click", (event) => this.ribbon(half, event));
  }

  openStub(half, element) {
    const stub = half.plan.stubs.find((other) => other.key === element.dataset.stub);
    this.expand(stub.hidden, stub.of);
  }

  // The nearest site, or the node at that place where no site is near.
  ribbon(half, event) {
    const order = this.graph.order[half.half];
    const box = half.ribbon.firstChild.getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width;
    const place = Math.min(order.length - 1, Math.max(0, Math.floor(part * order.length)));
    const reach = Math.max(1, (order.length * 6) / box.width);
    const away = (site) => Math.min(...site.ids[half.half].map((id) => Math.abs(this.graph.nodes[id].place[half.half] - place)));
    const near = this.graph.sites.filter((site) => this.list.shown.has(site.verdict) && away(site) <= reach);
    near.sort((a, b) => away(a) - away(b) || RANK.indexOf(a.verdict) - RANK.indexOf(b.verdict));
    if (near.length > 0) this.select(near[0]);
    else this.goTo(order[place]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.getElementById("help").open) return;
    const typing = event.target.closest?.("input, select");
    if (typing) return;
    const node = event.target.closest?.(".node, .stub");
    if (node && this.keyAtNode(event, node)) {
      event.preventDefault();
      return;
    }
    const action = {
      "ArrowDown": () => this.list.step(1),
      "j": () => this.list.step(1),
      "ArrowUp": () => this.list.step(-1),
      "k": () => this.list.step(-1),
      "/": () => this.list.search.focus(),
      "1": () => this.show("site"),
      "2": () => this.show("sites"),
      "3": () => this.show("whole"),
      "[": () => this.spread(-1),
      "]": () => this.spread(1),
      "f": () => this.fit(true),
      "+": () => this.zoom(1.25),
      "=": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      "g": () => this.enterGraph(),
      "t": () => this.theme(),
      "?": () => this.help(),
      "Escape": () => this.letGo(),
    }[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  }

  letGo() {
    if (this.held !== null) this.hold(null);
    else this.list.clear();
  }

  zoom(factor) {
    for (const half of this.halves) {
      const { width, height } = half.size();
      half.zoom(factor, width / 2, height / 2);
    }
  }

  enterGraph() {
    const half = this.halves[0];
    const first = this.site?.ids[0].find((id) => half.elements.has(id)) ?? half.plan.ids[0];
    half.elements.get(first)?.focus();
  }

  keyAtNode(event, element) {
    const half = this.halves.find((each) => each.svg.contains(element));
    if (event.key === "Escape") {
      this.hold(null);
      element.blur();
      return true;
    }
    if (element.classList.contains("stub")) {
      if (event.key === "Enter") this.openStub(half, element);
      return event.key === "Enter";
    }
    const id = Number(element.dataset.id);
    if (event.key === "Enter" || event.key === " ") this.hold(id, half);
    else if (event.key === "e") this.expandAt(half, id);
    else {
      const next = nextNode(half.plan, id, event.key);
      if (next === undefined) return false;
      if (next !== null) this.focusNode(half, next);
    }
    return true;
  }

  expandAt(half, id) {
    this.expand(half.plan.stubs.filter((stub) => stub.of === id).flatMap((stub) => stub.hidden), id);
    this.focusNode(half, id);
  }

  focusNode(half, id) {
    const box = half.plan.boxes.get(id);
    const { width, height } = half.size();
    const x = box.x * half.view.scale + half.view.x;
    const y = box.y * half.view.scale + half.view.y;
    if (x < 40 || y < 40 || x > width - 40 || y > height - 40) {
      half.look({ ...half.view, x: half.view.x + width / 2 - x, y: half.view.y + height / 2 - y });
    }
    this.hold(null);
    half.elements.get(id).focus({ preventScroll: true });
  }

  // --- the rest ----------------------------------------------------------------------------------

  isDark() {
    const root = document.documentElement.classList;
    if (root.contains("dark") || root.contains("light")) return root.contains("dark");
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  theme() {
    const dark = this.isDark();
    document.documentElement.classList.toggle("dark", !dark);
    document.documentElement.classList.toggle("light", dark);
    this.nameTheme();
  }

  nameTheme() {
    document.getElementById("theme").textContent = this.isDark() ? "Light" : "Dark";
  }

  help() {
    document.getElementById("help").showModal();
  }
}

// The node in the direction of an arrow key; undefined for other keys, null where there is none.
function nextNode(plan, id, key) {
  const direction = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[key];
  if (direction === undefined) return undefined;
  const [dx, dy] = direction;
  const from = plan.boxes.get(id);
  let best = null;
  let least = Infinity;
  for (const box of plan.boxes.values()) {
    const along = (box.x - from.x) * dx + (box.y - from.y) * dy;
    const across = Math.abs((box.x - from.x) * dy) + Math.abs((box.y - from.y) * dx);
    const joined = plan.edges.some((edge) => (edge.from === id && edge.to === box.id) || (edge.to === id && edge.from === box.id));
    const cost = along + 2 * across - (joined ? 200 : 0);
    if (along > 1 && cost < least) {
      best = box.id;
      least = cost;
    }
  }
  return best;
}

function does(node, half) {
  const { op, args } = node.facts[half];
  return node.kind === "op" || node.kind === "output" ? `${op}(${shortened(args, 400)})` : op;
}

// Right of a box, below, above or left of it: wherever there is room, in this order.
function placeBeside(box, card) {
  const inside = (at, size, all) => Math.max(8, Math.min(at, all - size - 8));
  const across = inside(box.left, card.width, innerWidth);
  const along = inside(box.top, card.height, innerHeight);
  if (box.right + 12 + card.width < innerWidth - 8) return { left: box.right + 12, top: along };
  if (box.bottom + 10 + card.height < innerHeight - 8) return { left: across, top: box.bottom + 10 };
  if (box.top - 10 - card.height > 8) return { left: across, top: box.top - 10 - card.height };
  return { left: Math.max(8, box.left - card.width - 12), top: along };
}

function legend() {
  const swatch = (marks, round = 4) => svg("svg", { width: 26, height: 14, "aria-hidden": "true" }, svg("g", { class: `node ${marks}` }, svg("rect", { class: "box", width: 26, height: 14, rx: round })));
  const item = (picture, said) => html("span", {}, picture, said);
  return [
    ...RANK.map((verdict) => item(sign(verdict), VERDICTS[verdict].says)),
    item(swatch("fires marked gone"), "replaced"),
    item(swatch("fires marked new"), "written"),
    item(swatch("close marked"), "stays"),
    item(swatch("input", 7), "input, output"),
    item(svg("svg", { width: 26, height: 14, "aria-hidden": "true" }, svg("g", { class: "node" }, svg("rect", { class: "cause", x: 1, y: 1, width: 24, height: 12, rx: 4 }))), "a cause is about it"),
  ];
}

new App();
