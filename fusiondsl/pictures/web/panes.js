// What is drawn of a half, and where: the shown nodes, what is hidden beside them, the layout.

const ROW = 14;
const SIDE = 12;
const LONGEST = 34;
const FAR_USE = 12; // nodes between two readers
const SIGNS = measureSigns();

function measureSigns() {
  const pen = document.createElement("canvas").getContext("2d");
  const mono = getComputedStyle(document.documentElement).getPropertyValue("--mono");
  const wide = (font) => {
    pen.font = font;
    return pen.measureText("0".repeat(40)).width / 40;
  };
  return { name: wide(`600 12px ${mono}`), small: wide(`10.5px ${mono}`), sans: 6.4 };
}

// The middle of a long text is left out.
function shortened(full, most = LONGEST) {
  if (full.length <= most) return full;
  const tail = Math.floor((most - 1) / 3);
  return `${full.slice(0, most - 1 - tail)}\u2026${full.slice(full.length - tail)}`;
}

function linesOf(node, half) {
  const { op, values } = node.facts[half];
  const lines = [{ style: "name", text: shortened(node.name) }];
  if (node.kind !== "output" && node.kind !== "input") {
    lines.push({ style: "op", text: shortened(shortOp(node.kind, op)) });
  }
  if (values.length > 0) {
    const more = values.length > 1 ? ` +${values.length - 1}` : "";
    lines.push({ style: "value", text: shortened(plainType(values[0])) + more });
  }
  return lines;
}

// Without what goes without saying; the card has all of it.
function shortOp(kind, op) {
  return kind === "item" ? op.replace(/ of .*$/, "") : op.replace(/\.default$/, "");
}

// Dtype and shape; strides and device are in the card.
const plainType = (value) => value.replace(/^(\w+\[[^\]]*\]).*$/, "$1");

function sizeOf(lines) {
  const widths = lines.map((line) => line.text.length * (line.style === "name" ? SIGNS.name : SIGNS.small));
  return { width: Math.ceil(Math.max(54, ...widths) + 2 * SIDE), height: lines.length * ROW + 12 };
}

// The nodes of a half that are drawn, in order, and how many more were asked for.
function chosen(graph, half, wanted) {
  const present = [...wanted].filter((id) => isIn(graph.nodes[id], half));
  const kept = present.slice(0, MOST_DRAWN);
  kept.sort((a, b) => graph.nodes[a].place[half] - graph.nodes[b].place[half]);
  return { ids: kept, left: present.length - kept.length };
}

// Whether an input is read so much later than at first that a line from there would be long: it is
// drawn once more beside this reader then.
function isFarUse(graph, half, source, id, shown) {
  const { kind, users } = graph.nodes[source];
  if (kind !== "input") return false;
  const place = (user) => graph.nodes[user].place[half];
  return place(id) - Math.min(...users[half].filter((user) => shown.has(user)).map(place)) > FAR_USE;
}

function layout(graph, half, wanted) {
  const { ids, left } = chosen(graph, half, wanted);
  const shown = new Set(ids);
  const plan = new dagre.graphlib.Graph({ multigraph: false });
  plan.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 30, edgesep: 10, marginx: 24, marginy: 40, ranker: "tight-tree" });
  plan.setDefaultEdgeLabel(() => ({}));
  const boxes = new Map();
  for (const id of ids) {
    const lines = linesOf(graph.nodes[id], half);
    boxes.set(id, { id, lines, ...sizeOf(lines) });
    plan.setNode(`n${id}`, { width: boxes.get(id).width, height: boxes.get(id).height });
  }
  const edges = [];
  const stubs = [];
  const copies = [];
  for (const id of ids) {
    const node = graph.nodes[id];
    const inputs = [...new Set(node.facts[half].inputs)];
    for (const source of inputs.filter((other) => shown.has(other))) {
      let start = `n${source}`;
      if (isFarUse(graph, half, source, id, shown)) {
        start = `c${copies.length}`;
        copies.push({ ...boxes.get(source), key: start });
      }
      edges.push({ from: source, to: id, start });
    }
    const above = inputs.filter((other) => !shown.has(other));
    const below = [...new Set(node.users[half])].filter((other) => !shown.has(other));
    if (above.length > 0) stubs.push({ of: id, up: true, hidden: above });
    if (below.length > 0) stubs.push({ of: id, up: false, hidden: below });
  }
  for (const copy of copies) plan.setNode(copy.key, { width: copy.width, height: copy.height });
  for (const edge of edges) plan.setEdge(edge.start, `n${edge.to}`);
  stubs.forEach((stub, index) => {
    stub.key = `s${index}`;
    stub.text = `${stub.hidden.length} more`;
    stub.width = Math.ceil(stub.text.length * SIGNS.sans + 18);
    stub.height = 20;
    plan.setNode(stub.key, { width: stub.width, height: stub.height });
    if (stub.up) plan.setEdge(stub.key, `n${stub.of}`);
    else plan.setEdge(`n${stub.of}`, stub.key);
  });
  if (ids.length > 0) dagre.layout(plan);
  const put = (thing, key) => {
    const { x, y } = plan.node(key);
    thing.x = x;
    thing.y = y;
  };
  boxes.forEach((box, id) => put(box, `n${id}`));
  for (const thing of [...stubs, ...copies]) put(thing, thing.key);
  for (const edge of edges) edge.points = plan.edge(edge.start, `n${edge.to}`).points;
  for (const stub of stubs) {
    const [from, to] = stub.up ? [stub.key, `n${stub.of}`] : [`n${stub.of}`, stub.key];
    stub.points = plan.edge(from, to).points;
  }
  return { graph, half, ids, left, boxes, edges, stubs, copies };
}

// A line through points that bends softly.
function bent(points) {
  const at = (point) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
  let path = `M${at(points[0])}`;
  for (let i = 1; i < points.length - 1; i += 1) {
    const middle = { x: (points[i].x + points[i + 1].x) / 2, y: (points[i].y + points[i + 1].y) / 2 };
    path += `Q${at(points[i])} ${at(i === points.length - 2 ? points[i + 1] : middle)}`;
  }
  return points.length === 2 ? `${path}L${at(points[1])}` : path;
}
