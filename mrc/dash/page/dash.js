// The live view: draws the plan once, then changes classes and texts as the stream tells what changed.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const KEPT = "mrc-dash";
const BUSY = 0.02, FULL = 0.9; // share of a link's rate, of the busier direction
const BUSY_BPS = 10000; // where a link has no rate
const PATHS_EVERY_MS = 1000;

const byId = (id) => document.getElementById(id);
const state = {links: {}, switches: {}, queues: {}, faults: {}, transfers: {}, injected: {}, log: {}, silent: {}};
const links = new Map(); // name -> {link, line, touch}
const nodes = new Map(); // name -> [groups], a host has one in each panel
let plan = null;
let kept = {};
try { kept = JSON.parse(localStorage.getItem(KEPT) || "{}"); } catch { kept = {}; }
let evs = [];

function keep(changes) {
  Object.assign(kept, changes);
  try { localStorage.setItem(KEPT, JSON.stringify(kept)); } catch { /* a browser that keeps nothing */ }
}

function make(name, attributes, parent, space) {
  const made = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") made.textContent = value; else made.setAttribute(key, value);
  }
  if (parent) parent.append(made);
  return made;
}

function rate(bps) {
  for (const [unit, size] of [["Gb/s", 1e9], ["Mb/s", 1e6], ["kb/s", 1e3]]) {
    if (bps >= size) return `${(bps / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(bps)} b/s`;
}

// ---- drawing ------------------------------------------------------------------------------------------------

function draw() {
  byId("said").textContent = plan.said;
  byId("fabric").style.setProperty("--panel-width", `${Math.round(plan.planes[0].width * 0.95)}px`);
  for (const panel of plan.planes) {
    const figure = make("figure", {}, byId("fabric"));
    make("figcaption", {text: `plane ${panel.plane}`}, figure);
    const svg = make("svg", {viewBox: `0 0 ${panel.width} ${panel.height}`, role: "group",
      "aria-label": `plane ${panel.plane}`}, figure, SVG);
    for (const link of panel.links) {
      const [x1, y1, x2, y2] = link.points;
      const touch = make("line", {x1, y1, x2, y2, class: "touch", tabindex: 0, role: "button",
        "data-link": link.name, "aria-label": `link ${link.name}`}, svg, SVG);
      const line = make("line", {x1, y1, x2, y2, class: "link"}, svg, SVG);
      make("title", {text: link.name}, touch, SVG);
      line.style.pointerEvents = "none";
      press(touch, () => choose({kind: "link", name: link.name}));
      links.set(link.name, {link, line, touch});
    }
    for (const node of panel.nodes) {
      const [width, height] = plan.sizes[node.kind];
      const group = make("g", {class: `node ${node.kind}`, tabindex: 0, role: "button", "data-node": node.name,
        "aria-label": node.name, transform: `translate(${node.x} ${node.y})`}, svg, SVG);
      make("rect", {x: -width / 2, y: -height / 2, width, height}, group, SVG);
      make("text", {text: node.label}, group, SVG);
      make("title", {text: node.name}, group, SVG);
      press(group, () => choose({kind: node.kind === "host" ? "host" : "switch", name: node.name}));
      if (!nodes.has(node.name)) nodes.set(node.name, []);
      nodes.get(node.name).push(group);
    }
  }
  for (const id of ["from", "to"]) {
    for (const host of plan.hosts) make("option", {value: host, text: host}, byId(id));
    byId(id).addEventListener("change", () => { keep({[id]: byId(id).value, ev: null}); readPaths(); });
  }
  byId("from").value = plan.hosts.includes(kept.from) ? kept.from : plan.hosts[0];
  byId("to").value = plan.hosts.includes(kept.to) ? kept.to : plan.hosts[plan.hosts.length - 1];
  if (kept.chosen && (links.has(kept.chosen.name) || nodes.has(kept.chosen.name))) choose(kept.chosen);
}

function press(element, act) {
  element.addEventListener("click", act);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); }
  });
}

// ---- what is shown ------------------------------------------------------------------------------------------

function injectedAt(name) {
  return Object.values(state.injected).filter((one) => one.where === name);
}

function faultAt(name) {
  return Object.values(state.faults).filter((one) => one.location === name || one.location.split(" or ").includes(name));
}

function pathOf(ev) {
  const found = evs.find((one) => one.ev === ev);
  return found ? found.path : [];
}

function showLink(name) {
  const {link, line, touch} = links.get(name);
  const now = state.links[name];
  if (!now) return;
  const use = Math.max(...now.use);
  const share = now.rate ? use / now.rate : 0;
  const path = pathOf(kept.ev);
  const at = path.indexOf(link.nodes[0]);
  const onPath = path.includes(link.nodes[1]) && at >= 0 && Math.abs(path.indexOf(link.nodes[1]) - at) === 1;
  const set = ["link"];
  if (!now.up) set.push("down");
  else if (faultAt(name).length) set.push("faulty");
  else if (injectedAt(name).length) set.push("injected");
  else if (share >= FULL) set.push("full");
  else if (now.rate ? share >= BUSY : use >= BUSY_BPS) set.push("busy");
  if (onPath) set.push("path");
  if (kept.chosen && kept.chosen.name === name) set.push("chosen");
  line.setAttribute("class", set.join(" "));
  const waits = link.interfaces.map((port) => state.queues[port]).filter(Boolean);
  const said = `${name}: ${now.up ? "up" : "DOWN"}, ${rate(now.use[0])} up, ${rate(now.use[1])} down`
    + (waits.length ? `, ${Math.max(...waits)} bytes wait` : "");
  touch.firstChild.textContent = said;
  touch.setAttribute("aria-label", said);
}

function showNode(name) {
  const now = state.switches[name];
  const kind = nodes.get(name)[0].classList.contains("host") ? "host" : name.includes("t0") ? "t0" : "t1";
  const set = ["node", kind];
  if (now && !now.on) set.push("off");
  if (faultAt(name).length || injectedAt(name).length) set.push("faulty");
  if (now && (now.marks || now.trims)) set.push("marks");
  if (kept.chosen && kept.chosen.name === name) set.push("chosen");
  for (const group of nodes.get(name)) group.setAttribute("class", set.join(" "));
}

function showSummary() {
  const all = Object.values(state.links);
  const up = all.filter((one) => one.up).length;
  const sums = Object.values(state.switches).reduce((sum, one) => [sum[0] + one.marks, sum[1] + one.trims], [0, 0]);
  const sent = all.length ? [...links.values()].filter(({link}) => link.kind === "NIC-T0")
    .reduce((sum, {link}) => sum + (state.links[link.name] || {use: [0, 0]}).use[0], 0) : 0;
  const faults = Object.keys(state.faults).length;
  const silent = Object.entries(state.silent).map(([name, why]) => ` · ${name} does not answer: ${why}`).join("");
  byId("summary").textContent = `${up} of ${all.length} links up · hosts send ${rate(sent)} · ${sums[0]} marks/s, `
    + `${sums[1]} trims/s · ${faults} fault${faults === 1 ? "" : "s"}${silent}`;
}

function fill(id, entries, make_one, empty) {
  const list = byId(id);
  list.replaceChildren(...entries.map(make_one));
  if (!entries.length) make("li", {class: "hint", text: empty}, list);
}

function showLists() {
  fill("faults", Object.values(state.faults), (one) => {
    const item = make("li", {class: "fault", text: `${one.text} `});
    make("span", {class: "hint", text: `seen by ${one.sources.join(", ")}`}, item);
    return item;
  }, "none: the controller knows of nothing broken");
  byId("heal").disabled = !Object.keys(state.injected).length;
  fill("transfers", Object.values(state.transfers).reverse(), (one) => {
    const item = make("li", {text: `${one.label}: ${one.state}`});
    if (one.state === "running") make("progress", {max: one.bytes, value: one.bytes_done}, item);
    return item;
  }, "none yet: choose two hosts and send");
  const lines = Object.entries(state.log).sort((a, b) => b[0] - a[0]);
  const first = lines.length ? lines[lines.length - 1][1].at : 0;
  fill("log", lines, ([, one]) => {
    const item = make("li", {class: one.kind});
    make("time", {text: `${(one.at - first).toFixed(2)} s`}, item);
    item.append(one.text);
    return item;
  }, "nothing happened yet");
}

// ---- what was chosen ----------------------------------------------------------------------------------------

function choose(what) {
  const before = kept.chosen;
  keep({chosen: what});
  for (const one of [before, what]) {
    if (one && links.has(one.name)) showLink(one.name);
    if (one && nodes.has(one.name)) showNode(one.name);
  }
  showCard();
}

function actions(what) {
  if (what.kind === "link") {
    const [a, b] = links.get(what.name).link.nodes;
    const up = (state.links[what.name] || {up: true}).up;
    return [
      [up ? "cut" : "restore", `link ${a} ${b} ${up ? "down" : "up"}`, up],
      ["lose 1 %", `loss ${a} ${b} 1%`, true], ["corrupt 1 %", `corrupt ${a} ${b} 1%`, true],
      [`cut ${a} → ${b}`, `oneway ${a} ${b}`, true], ["flap", `flap ${a} ${b} 2s x5`, true],
    ];
  }
  if (what.kind === "switch") {
    const on = (state.switches[what.name] || {on: true}).on;
    const hole = injectedAt(what.name).some((one) => one.kind === "blackhole");
    return [
      [on ? "switch off" : "switch on", `power ${what.name} ${on ? "off" : "on"}`, on],
      [hole ? "forward again" : "black hole", `blackhole ${what.name}${hole ? " off" : ""}`, !hole],
      ["reboot", `reboot ${what.name}`, true],
    ];
  }
  return [];
}

function rows(what) {
  const out = [["name", what.name]];
  if (what.kind === "link" && state.links[what.name]) {
    const now = state.links[what.name];
    const {link} = links.get(what.name);
    out.push(["state", now.up ? "up" : "DOWN"], ["rate", now.rate ? rate(now.rate) : "no limit"],
      ["use", `${rate(now.use[0])} ↑  ${rate(now.use[1])} ↓`]);
    for (const port of link.interfaces) if (state.queues[port]) out.push([port, `${state.queues[port]} bytes wait`]);
  }
  if (what.kind === "switch" && state.switches[what.name]) {
    const now = state.switches[what.name];
    out.push(["power", now.on ? "on" : "OFF"], ["marked", `${now.marked} packets, ${now.marks}/s`],
      ["trimmed", `${now.trimmed} packets, ${now.trims}/s`]);
  }
  for (const one of injectedAt(what.name)) out.push(["broken by hand", `${one.kind.replaceAll("_", " ")} ${one.detail}`]);
  for (const one of faultAt(what.name)) out.push(["controller", one.text]);
  return out;
}

function showCard() {
  const what = kept.chosen;
  if (!what) return;
  const said = JSON.stringify([rows(what), actions(what)]);
  if (said === showCard.said) return; // what has the focus keeps it
  showCard.said = said;
  const card = byId("card");
  const focus = document.activeElement && card.contains(document.activeElement) && document.activeElement.dataset.nth;
  card.replaceChildren();
  const table = make("table", {}, card);
  for (const [key, value] of rows(what)) {
    const row = make("tr", {}, table);
    make("td", {text: key}, row);
    make("td", {text: value}, row);
  }
  const bar = make("p", {class: "row"}, card);
  actions(what).forEach(([label, command, breaks], nth) => {
    const button = make("button", {text: label, title: command, "data-nth": nth, class: breaks ? "breaks" : ""}, bar);
    button.addEventListener("click", () => act(command));
    if (String(nth) === focus) button.focus();
  });
  if (what.kind === "host") {
    for (const [label, id] of [["send from here", "from"], ["send to here", "to"]]) {
      make("button", {text: label}, bar).addEventListener("click", () => {
        byId(id).value = what.name;
        byId(id).dispatchEvent(new Event("change"));
      });
    }
  }
}

async function act(command) {
  const answer = byId("answer");
  answer.className = "";
  answer.textContent = `${command} …`;
  try {
    const got = await fetch("/command", {method: "POST", headers: {"Content-Type": "application/json", "X-MRC-Dash": "1"},
      body: JSON.stringify({command})});
    const told = await got.json();
    answer.textContent = told.said ?? told.error;
    if (!got.ok) answer.className = "error";
  } catch (error) {
    answer.className = "error";
    answer.textContent = `${command}: the fabric does not answer (${error.message})`;
  }
}

// ---- paths --------------------------------------------------------------------------------------------------

async function readPaths() {
  const from = byId("from").value, to = byId("to").value;
  const said = byId("paths-said");
  byId("send").disabled = from === to;
  if (from === to) { evs = []; said.textContent = "choose two different hosts"; showPaths(); return; }
  try {
    const got = await fetch(`/evs?from=${encodeURIComponent(from)}&to=${encodeURIComponent(to)}`);
    const told = await got.json();
    if (!got.ok) throw new Error(told.error);
    if (from !== byId("from").value || to !== byId("to").value) return;
    evs = told.evs;
    const good = evs.filter((one) => one.state === "good").length;
    said.textContent = told.qps ? `${evs.length} paths, ${good} good; click one to light it up`
      : `${evs.length} paths; their state is known once something is sent`;
  } catch (error) {
    evs = [];
    said.textContent = `${from} does not tell: ${error.message}`;
  }
  showPaths();
}

function showPaths() {
  const drawn = JSON.stringify([kept.ev, evs.map((one) => [one.ev, one.state, one.lost])]);
  if (drawn === showPaths.drawn) return;
  showPaths.drawn = drawn;
  const planes = new Map();
  for (const one of evs) planes.set(one.plane, [...(planes.get(one.plane) || []), one]);
  const focus = document.activeElement && document.activeElement.dataset.ev;
  byId("paths").replaceChildren();
  for (const [plane, mine] of planes) {
    const row = make("div", {class: "plane-paths"}, byId("paths"));
    make("span", {text: `plane ${plane}`}, row);
    for (const one of mine) {
      const title = `EV 0x${one.ev.toString(16).padStart(4, "0")} ${one.state}: ${one.path.join(" ")}`
        + (one.address ? `, to ${one.address}` : "") + `; ${one.sent} sent, ${one.lost} lost`;
      const button = make("button", {class: `ev ${one.state}`, title, "aria-label": title, "data-ev": one.ev,
        "aria-pressed": String(one.ev === kept.ev)}, row);
      button.addEventListener("click", () => light(one.ev === kept.ev ? null : one));
      if (String(one.ev) === focus) button.focus();
    }
  }
  for (const name of links.keys()) showLink(name);
}

function light(one) {
  keep({ev: one ? one.ev : null});
  showPaths();
  const answer = byId("answer");
  answer.className = "";
  answer.replaceChildren();
  if (!one) return;
  answer.textContent = `EV 0x${one.ev.toString(16).padStart(4, "0")}, ${one.state}\n${one.path.join(" → ")}\n`
    + (one.address ? `outer address (locator and uSIDs) ${one.address}\n` : "") + `${one.sent} sent, ${one.lost} lost\n`;
  const button = make("button", {text: "trace a packet along it"}, answer);
  const command = `trace ${byId("from").value} ${byId("to").value} 0x${one.ev.toString(16).padStart(4, "0")}`;
  button.addEventListener("click", () => act(command));
}

// ---- stream -------------------------------------------------------------------------------------------------

function take(news) {
  for (const [part, entries] of Object.entries(news)) {
    for (const [key, value] of Object.entries(entries)) {
      if (value === null) delete state[part][key]; else state[part][key] = value;
    }
  }
  const everywhere = news.faults || news.injected;
  for (const name of everywhere || news.queues ? links.keys() : Object.keys(news.links || {})) showLink(name);
  for (const name of everywhere ? nodes.keys() : Object.keys(news.switches || {})) showNode(name);
  showSummary();
  if (news.faults || news.transfers || news.log || news.injected) showLists();
  showCard();
}

function listen() {
  const stream = new EventSource("/stream");
  stream.addEventListener("state", (event) => {
    for (const part of Object.keys(state)) state[part] = {};
    take(JSON.parse(event.data));
    showLists();
  });
  stream.addEventListener("change", (event) => take(JSON.parse(event.data)));
  stream.onerror = () => {
    byId("summary").textContent = stream.readyState === EventSource.CLOSED
      ? "the fabric is down, or this address is an old one: `mrc dash` tells the new one"
      : "connection lost, trying again …";
  };
}

async function begin() {
  const got = await fetch("/plan");
  if (!got.ok) { byId("summary").textContent = (await got.json()).error; return; }
  plan = await got.json();
  draw();
  byId("heal").addEventListener("click", () => act("heal"));
  byId("send").addEventListener("click", () => act(`send ${byId("from").value} ${byId("to").value} 16M`));
  listen();
  readPaths();
  setInterval(() => { if (!document.hidden) readPaths(); }, PATHS_EVERY_MS);
}

begin();
