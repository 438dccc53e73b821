// The rules on the left, their sites, and one site in full.

const FIRST_FIRED = 5; // sites of a rule that fires, until more are asked for
const FIRST_FOUND = 30; // alike sites a search lists
const MOST_FOUND = 40; // nodes listed for a search

class List {
  constructor(app) {
    this.app = app;
    this.element = document.getElementById("list");
    this.search = document.getElementById("search");
    this.shown = new Set(RANK);
    this.open = new Set();
    this.search.addEventListener("input", () => this.draw());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        this.clear();
        this.search.blur();
      }
      if (event.key === "Enter") this.enter();
    });
  }

  clear() {
    this.search.value = "";
    this.draw();
    this.reveal();
  }

  // The node of that name, or the first thing found.
  enter() {
    const node = this.app.graph.nodes.find((each) => each.name === this.search.value.trim());
    const first = this.rows[0];
    if (node) this.app.goTo(node.id);
    else if (first) this.app.select(first);
    else this.element.querySelector(".nodes button")?.click();
    this.search.blur();
  }

  drawVerdicts() {
    const counts = this.app.graph.count;
    const chips = RANK.filter((verdict) => counts[verdict] > 0).map((verdict) => {
      const chip = html("button", { class: "chip", type: "button", "aria-pressed": this.shown.has(verdict) }, sign(verdict), `${counts[verdict].toLocaleString("en")} ${verdict === "close" ? "close" : verdict}`);
      chip.title = `Sites where ${VERDICTS[verdict].says}: show or hide`;
      chip.addEventListener("click", () => {
        if (!this.shown.delete(verdict)) this.shown.add(verdict);
        this.drawVerdicts();
        this.draw();
      });
      return chip;
    });
    document.getElementById("verdicts").replaceChildren(...chips);
  }

  draw() {
    const wanted = this.search.value.trim().toLowerCase();
    this.rows = [];
    const parts = [];
    const far = [];
    for (const rule of this.app.graph.rules) {
      if (rule.sites.length === 0 && rule.name.toLowerCase().includes(wanted)) far.push(rule);
      const part = this.rule(rule, wanted);
      if (part !== null) parts.push(part);
    }
    const found = wanted === "" ? [] : this.nodes(wanted);
    if (far.length > 0) parts.push(this.far(far));
    if (parts.length + found.length === 0) parts.push(html("p", { class: "nothing" }, wanted ? "Nothing is called that." : "No rule fires or comes close."));
    this.element.replaceChildren(...parts, ...found);
    for (const code of this.element.querySelectorAll("pre")) bringMarkIntoView(code);
  }

  rule(rule, wanted) {
    const named = rule.name.toLowerCase().includes(wanted);
    const sites = rule.sites.filter((site) => this.shown.has(site.verdict) && (named || matches(site, wanted)));
    if (sites.length === 0) return null;
    const section = html("section", { class: "rule" });
    section.append(html("header", {}, html("h3", {}, rule.name), html("span", {}, counted(rule))));
    const about = html("div", { class: "about" });
    if (rule.place) about.append(html("div", { title: rule.place }, shortPlace(rule.place)));
    if (rule.proof) about.append(html("div", {}, `proof: ${rule.proof}`));
    for (const cause of rule.causes) about.append(html("div", { class: "why" }, html("span", { class: "code" }, cause.code), ` ${cause.message}`));
    section.append(about);
    section.append(this.table(rule, sites, wanted !== ""));
    return section;
  }

  // Rules that come close nowhere, with what there is to say of them.
  far(rules) {
    const section = html("section", { class: "rule far" });
    section.append(html("header", {}, html("h3", {}, "Near nowhere"), html("span", {}, howMany(rules.length, "rule"))));
    for (const rule of rules) {
      const line = html("p", { title: rule.place }, html("span", { class: "name" }, rule.name));
      for (const cause of rule.causes) line.append(html("span", { class: "first" }, html("b", {}, ` ${cause.code}`), ` ${cause.message}`));
      section.append(line);
    }
    return section;
  }

  // Sites where the same things are in the way are one row, until they are asked for.
  table(rule, sites, searched) {
    const table = html("table");
    table.append(html("colgroup", {}, html("col", { class: "mark" }), html("col")));
    for (const [key, alike] of groupsOf(rule, sites)) {
      const fired = key.endsWith(" -1");
      const most = searched ? FIRST_FOUND : fired ? FIRST_FIRED : 1;
      const kept = this.open.has(key) || alike.length <= most + 1 ? [...alike] : alike.slice(0, most);
      const chosen = this.app.site;
      if (chosen !== null && alike.includes(chosen) && !kept.includes(chosen)) kept.push(chosen);
      const body = html("tbody");
      for (const site of kept) body.append(...this.row(site));
      if (kept.length < alike.length) {
        const more = html("button", { type: "button" }, `${howMany(alike.length - kept.length, "more site")}${fired ? "" : " alike"}`);
        more.addEventListener("click", () => {
          this.open.add(key);
          this.draw();
        });
        body.append(html("tr", {}, html("td", { class: "more", colspan: 2 }, more)));
      }
      table.append(body);
    }
    return table;
  }

  row(site) {
    this.rows.push(site);
    const chosen = site === this.app.site;
    const row = html("tr", { class: "site", "data-site": site.index, "aria-selected": chosen });
    const mark = html("td", {}, sign(site.verdict));
    mark.title = VERDICTS[site.verdict].says;
    const what = html("td", {}, html("div", { class: "name" }, site.node));
    const cause = site.causes[0];
    if (cause) what.append(html("div", { class: "first" }, html("b", {}, cause.label ? `${cause.code} [${cause.label}]` : cause.code), ` ${cause.message}`));
    row.append(mark, what);
    row.addEventListener("click", () => this.app.select(site));
    if (!chosen) return [row];
    return [row, html("tr", {}, html("td", { class: "details", colspan: 2 }, ...this.details(site)))];
  }

  details(site) {
    const parts = [];
    const ops = site.calls > 0 ? `${site.matched} of ${howMany(site.calls, "op")} ${site.matched === 1 && site.calls === 1 ? "stands" : "stand"} here` : "";
    if (site.verdict !== "already fused" && ops) parts.push(html("p", { class: "where" }, ops));
    if (site.line) parts.push(html("p", { class: "where" }, site.line));
    if (site.forms.length > 0) parts.push(html("p", { class: "where" }, `spelled ${site.forms.join(", ")}`));
    const written = site.after.filter((id) => isNew(this.app.graph.nodes[id]));
    if (written.length > 0) parts.push(html("p", { class: "where" }, "becomes ", ...this.links(written)));
    if (site.causes.length > 0) {
      parts.push(html("ol", {}, ...site.causes.map((cause, index) => this.cause(cause, index + 1))));
    }
    if (site.edits.length > 0) {
      const edit = html("p", { class: "edit" }, "fires with ");
      site.edits.forEach((change, index) => {
        edit.append(index > 0 ? " and " : "", ...quoted(change.text), change.place ? ` (${change.place})` : "");
      });
      parts.push(edit);
    }
    return parts;
  }

  links(ids) {
    return ids.flatMap((id, index) => [index > 0 ? ", " : "", this.link(id)]);
  }

  link(id) {
    const go = html("button", { class: "link", type: "button" }, this.app.graph.nodes[id].name);
    go.addEventListener("click", () => this.app.goTo(id));
    return go;
  }

  cause(cause, number) {
    const item = html("li", {}, html("span", { class: "number", "aria-hidden": "true" }, String(number)), html("span", { class: "code" }, cause.code));
    if (cause.label) item.append(html("span", { class: "label" }, ` [${cause.label}]`));
    item.append(` ${cause.message}`);
    if (cause.node && cause.ids.length > 0) {
      item.append(html("div", { class: "where" }, "at ", this.link(cause.ids[0]), cause.line ? `, ${cause.line}` : ""));
    }
    if (cause.place) item.append(html("div", { class: "where", title: cause.place }, shortPlace(cause.place)));
    if (cause.snippet) item.append(html("pre", {}, cause.snippet));
    if (cause.because.length > 0) {
      item.append(html("ul", {}, ...cause.because.map((inner) => html("li", {}, html("span", { class: "code" }, inner.code), ` ${inner.message}`))));
    }
    return item;
  }

  nodes(wanted) {
    const { nodes } = this.app.graph;
    const hits = nodes.filter((node) => isNamed(node, wanted));
    if (hits.length === 0) return [];
    const section = html("section", { class: "rule nodes" });
    section.append(html("header", {}, html("h3", {}, "Nodes"), html("span", {}, howMany(hits.length, "node"))));
    for (const node of hits.slice(0, MOST_FOUND)) {
      const button = html("button", { type: "button", "data-id": node.id }, node.name, html("span", {}, `  ${node.facts[isNew(node) ? 1 : 0].op}`));
      button.addEventListener("click", () => this.app.goTo(node.id));
      section.append(button);
    }
    if (hits.length > MOST_FOUND) section.append(html("p", { class: "nothing" }, `and ${howMany(hits.length - MOST_FOUND, "more node")}`));
    return [section];
  }

  step(by) {
    if (this.rows.length === 0) return;
    const now = this.rows.indexOf(this.app.site);
    const next = now < 0 ? 0 : Math.min(this.rows.length - 1, Math.max(0, now + by));
    this.app.select(this.rows[next]);
  }

  // The chosen site can be seen, whatever was searched for or hidden.
  reveal() {
    if (this.app.site !== null && !this.rows.includes(this.app.site)) {
      this.search.value = "";
      this.shown.add(this.app.site.verdict);
      this.drawVerdicts();
      this.draw();
    }
    this.element.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }
}

function isNamed(node, wanted) {
  const said = [node.name, ...node.facts.flatMap(({ op, line }) => [op, line])];
  return said.some((part) => part.toLowerCase().includes(wanted));
}

function matches(site, wanted) {
  const said = [site.node, site.verdict, ...site.causes.flatMap((cause) => [cause.code, cause.message])];
  return said.some((part) => part.toLowerCase().includes(wanted));
}

function groupsOf(rule, sites) {
  const groups = new Map();
  for (const site of sites) {
    const key = `${rule.name} ${site.group}`;
    groups.set(key, [...(groups.get(key) ?? []), site]);
  }
  return groups;
}

function counted(rule) {
  const parts = RANK.map((verdict) => [verdict, rule.sites.filter((site) => site.verdict === verdict).length]);
  const said = parts.filter(([, count]) => count > 0).map(([verdict, count]) => `${count} ${verdict}`);
  return said.join(", ");
}

// Lines of rules are long, and it is the part with the marks under it that counts.
function bringMarkIntoView(code) {
  const line = code.textContent.split("\n").find((each) => each.includes("^")) ?? "";
  const wide = code.scrollWidth / Math.max(1, ...code.textContent.split("\n").map((each) => each.length));
  const end = (line.lastIndexOf("^") + 2) * wide;
  if (end > code.clientWidth) code.scrollLeft = Math.max(0, (line.indexOf("^") - 8) * wide);
}

// A file with the directory it is in, which is what tells files apart.
const shortPlace = (place) => place.split("/").slice(-2).join("/");

// `code` between backquotes.
function quoted(words) {
  return words.split("`").map((part, index) => (index % 2 ? html("code", {}, part) : part));
}
