// The graphs and their sites as the page holds them.

const DATA = JSON.parse(document.getElementById("data").textContent);
const text = (number) => (number === null || number === undefined ? "" : DATA.texts[number]);

const VERDICTS = {
  "fires": { style: "fires", sign: "\u2713", says: "fires" },
  "close": { style: "close", sign: "\u2248", says: "comes close" },
  "taken": { style: "taken", sign: "\u2192", says: "taken by another rule" },
  "already fused": { style: "fused", sign: "=", says: "fused already" },
};
const RANK = ["fires", "already fused", "close", "taken"];

const MOST_DRAWN = 500; // nodes of a half; more are neither quick nor readable
const FEW = 45; // nodes up to which all of a graph, or of its sites, is drawn at first
const MANY_SITES = 160; // nodes up to which sites are drawn beside each other
const HUB = 12; // readers of a value that are not followed of themselves
const BY_CLICK = 24; // nodes one click brings in

function readGraph(raw) {
  const nodes = raw.nodes.map((node, id) => ({
    id,
    name: text(node[0]),
    kind: node[1],
    facts: [readFacts(node), readFacts(node)],
    users: [[], []],
    place: [-1, -1],
    sites: [],
  }));
  for (const [id, node] of raw.changed) nodes[id].facts[1] = readFacts(node);
  const order = [nodes.slice(0, raw.before).map((node) => node.id), raw.after];
  order.forEach((ids, half) => ids.forEach((id, place) => (nodes[id].place[half] = place)));
  order.forEach((ids, half) => {
    for (const id of ids) {
      for (const source of nodes[id].facts[half].inputs) nodes[source].users[half].push(id);
    }
  });
  const graph = { name: text(raw.name), target: raw.target.map(text), notes: raw.notes.map(text), nodes, order, sites: [] };
  graph.rules = raw.rules.map((rule) => readRule(rule, graph));
  graph.count = {};
  for (const verdict of RANK) {
    graph.count[verdict] = graph.sites.filter((site) => site.verdict === verdict).length;
  }
  return graph;
}

function readFacts(node) {
  return { op: text(node[2]), args: text(node[3]), values: node[4].map(text), line: text(node[5]), inputs: node[6] };
}

function readRule(raw, graph) {
  const rule = {
    name: text(raw.name),
    place: text(raw.place),
    proof: text(raw.proof),
    causes: raw.causes.map(readCause),
  };
  rule.sites = raw.sites.map((site) => {
    const read = {
      ...site,
      rule,
      index: graph.sites.length,
      node: text(site.node),
      line: text(site.line),
      forms: site.forms.map(text),
      causes: site.causes.map(readCause),
      edits: site.edits.map(([edit, place]) => ({ text: text(edit), place: text(place) })),
      ids: [site.before, site.after],
    };
    for (const id of new Set([...site.before, ...site.after])) graph.nodes[id].sites.push(read);
    graph.sites.push(read);
    return read;
  });
  return rule;
}

function readCause(raw) {
  return {
    ...raw,
    label: text(raw.label),
    message: text(raw.message),
    node: text(raw.node),
    line: text(raw.line),
    place: text(raw.place),
    snippet: text(raw.snippet),
    because: raw.because.map(readCause),
  };
}

const isIn = (node, half) => node.place[half] >= 0;
const isGone = (node) => isIn(node, 0) && !isIn(node, 1);
const isNew = (node) => !isIn(node, 0);

// What a node counts for where several sites have it: the best of them.
function mainVerdict(node, half) {
  let best = RANK.length;
  for (const site of node.sites) {
    if (site.ids[half].includes(node.id)) best = Math.min(best, RANK.indexOf(site.verdict));
  }
  return RANK[best];
}

const howMany = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

// The nodes up to `steps` away from some, nearest first, in both halves. Nothing is followed
// through an input or through a value that much reads.
function around(graph, seeds, steps) {
  const found = new Set(seeds);
  const started = new Set(seeds);
  let edge = [...found];
  for (let step = 0; step < steps && found.size < 2 * MOST_DRAWN; step += 1) {
    const next = [];
    for (const id of edge) {
      const node = graph.nodes[id];
      for (const half of [0, 1]) {
        if (!isIn(node, half)) continue;
        for (const other of neighbours(node, half, started.has(id))) {
          if (!found.has(other)) {
            found.add(other);
            next.push(other);
          }
        }
      }
    }
    edge = next;
  }
  return found;
}

function neighbours(node, half, isSeed) {
  const through = isSeed || node.kind === "op" || node.kind === "item";
  if (!through) return [];
  const users = node.users[half];
  const inputs = node.kind === "output" ? [] : node.facts[half].inputs;
  return [...inputs, ...(users.length > HUB ? [] : users)];
}
