// The live view: draws the plan once, then changes classes and texts as the stream tells what changed. The same page is
// that of a finished run: then a recording stands in it (mrc_testbed/dash/recording.py), and a slider says what time it shows.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const KEPT = "mrc-dash";
const BUSY = 0.02, FULL = 0.9; // share of a link's rate, of the busier direction
const BUSY_BPS = 10000; // where a link has no rate
const PATHS_EVERY_MS = 1000;
const CURVE_WIDTH = 266; // pixels, least

const byId = (id) => document.getElementById(id);
const state = {links: {}, switches: {}, hosts: {}, queues: {}, faults: {}, transfers: {}, injected: {}, log: {}, silent: {}};
const links = new Map(); // name -> {link, line, touch}
const nodes = new Map(); // name -> [groups], a host has one in each panel
const kinds = new Map(); // name -> host, t0 or t1: names of a topology file do not tell
let plan = null;
let kept = {};
try { kept = JSON.parse(localStorage.getItem(KEPT) || "{}"); } catch { kept = {}; }
let evs = [];
const recorded = byId("recording");
const run = recorded ? JSON.parse(recorded.textContent) : null;

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
  for (const [unit, size] of [["Tb/s", 1e12], ["Gb/s", 1e9], ["Mb/s", 1e6], ["kb/s", 1e3]]) {
    if (bps >= size) return `${(bps / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(bps)} b/s`;
}

// The unit of a recorded run's times, which its length decides, as units.time_unit does; seconds of a live fabric.
function timeUnit() {
  const [name, , size] = [["s", 0.5, 1], ["ms", 0.01, 1e-3], ["us", 1e-5, 1e-6]]
    .find(([, least]) => !run || run.duration_s >= least) || ["ns", 0, 1e-9];
  return {name, size};
}

function moment(seconds, digits) {
  const {name, size} = timeUnit();
  return `${(seconds / size).toFixed(digits)} ${name}`;
}

// ---- drawing ------------------------------------------------------------------------------------------------

function draw() {
  document.body.classList.toggle("looks-on", Boolean(run) || !plan.acts);
  byId("said").textContent = plan.said;
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
      kinds.set(node.name, node.kind);
    }
  }
  evenRows(byId("fabric"), plan.planes[0].width * 0.95);
  evenRows(byId("curves"), CURVE_WIDTH);
  for (const id of ["from", "to"]) {
    for (const host of plan.hosts) make("option", {value: host, text: host}, byId(id));
    byId(id).addEventListener("change", () => { keep({[id]: byId(id).value, ev: null}); readPaths(); });
  }
  const [first, last] = run ? busiestPair().split(" ") : [];
  byId("from").value = plan.hosts.includes(kept.from) ? kept.from : first || plan.hosts[0];
  byId("to").value = plan.hosts.includes(kept.to) ? kept.to : last || plan.hosts[plan.hosts.length - 1];
  if (kept.chosen && (links.has(kept.chosen.name) || nodes.has(kept.chosen.name))) choose(kept.chosen);
}

// Rows of as equal length as the width allows: four panels where three fit are two and two.
function evenRows(grid, panelWidth) {
  const fit = () => {
    const gap = parseFloat(getComputedStyle(grid).columnGap) || 0;
    const most = Math.max(1, Math.floor((grid.clientWidth + gap) / (panelWidth + gap)));
    const count = grid.children.length;
    grid.style.setProperty("--columns", Math.max(1, Math.ceil(count / Math.ceil(count / most))));
  };
  new ResizeObserver(fit).observe(grid);
  new MutationObserver(fit).observe(grid, {childList: true});
  fit();
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
  const use = now.use ? Math.max(...now.use) : 0;
  const share = now.rate ? use / now.rate : 0;
  const path = pathOf(kept.ev);
  const at = path.indexOf(link.nodes[0]);
  const onPath = path.includes(link.nodes[1]) && at >= 0 && Math.abs(path.indexOf(link.nodes[1]) - at) === 1;
  const set = ["link"];
  if (!now.up) set.push("down");
  else if (faultAt(name).length) set.push("faulty");
  else if (injectedAt(name).length) set.push("injected");
  else if (!now.use) set.push("unknown");
  else if (share >= FULL) set.push("full");
  else if (now.rate ? share >= BUSY : use >= BUSY_BPS) set.push("busy");
  if (onPath) set.push("path");
  if (kept.chosen && kept.chosen.name === name) set.push("chosen");
  line.setAttribute("class", set.join(" "));
  const waits = link.interfaces.map((port) => state.queues[port]).filter(Boolean);
  const said = `${name}: ${now.up ? "up" : "DOWN"}, ${use_of(now)}`
    + (waits.length ? `, ${Math.max(...waits)} bytes wait` : "");
  touch.firstChild.textContent = said;
  touch.setAttribute("aria-label", said);
}

function use_of(now) {
  return now.use ? `${rate(now.use[0])} ↑ ${rate(now.use[1])} ↓` : "use not recorded";
}

function showNode(name) {
  const now = state.switches[name] || state.hosts[name];
  const kind = kinds.get(name);
  const set = ["node", kind];
  if (now && !now.on) set.push("off");
  if (faultAt(name).length || injectedAt(name).length) set.push("faulty");
  if (now && (now.marks || now.trims)) set.push("marks");
  if (kept.chosen && kept.chosen.name === name) set.push("chosen");
  for (const group of nodes.get(name)) group.setAttribute("class", set.join(" "));
}

function showSummary() {
  if (run) return;
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
  const injected = run ? activeFaults().map(({text}) => ({text, said: "injected"})) : [];
  const named = Object.values(state.faults).map(({text, sources}) => ({text,
    said: run ? "found by the controller" : sources.length ? `seen by ${sources.join(", ")}` : ""}));
  fill("faults", [...injected, ...named], (one) => {
    const item = make("li", {class: "fault", text: `${one.text} `});
    make("span", {class: "hint", text: one.said}, item);
    return item;
  }, run ? "none at this time" : "none: the controller knows of nothing broken");
  byId("heal").disabled = !Object.keys(state.injected).length;
  fill("transfers", Object.values(state.transfers).reverse(), (one) => {
    const item = make("li", {text: one.state ? `${one.label}: ${one.state}` : one.label});
    if ((run || one.state === "running") && one.bytes) make("progress", {max: one.bytes, value: one.bytes_done}, item);
    return item;
  }, run ? "none: not recorded, or none there" : "none yet: choose two hosts and send");
  // The controller's findings and what the prompt did come from two sources: their times order them.
  const lines = Object.entries(state.log).sort(([m, a], [n, b]) => b.at - a.at || n - m);
  const first = run || !lines.length ? 0 : lines[lines.length - 1][1].at;
  fill("log", lines, ([, one]) => {
    const item = make("li", {class: one.kind});
    make("time", {text: moment(one.at - first, 2)}, item);
    item.append(one.text);
    return item;
  }, "nothing happened yet");
}

// ---- what was chosen ----------------------------------------------------------------------------------------

function choose(what) {
  const before = kept.chosen;
  keep({chosen: what});
  drawCurves();
  for (const one of [before, what]) {
    if (one && links.has(one.name)) showLink(one.name);
    if (one && nodes.has(one.name)) showNode(one.name);
  }
  showCard();
}

function actions(what) {
  if (run || !plan.acts) return [];
  if (what.kind === "link") {
    const [a, b] = links.get(what.name).link.nodes;
    const up = (state.links[what.name] || {up: true}).up;
    return [
      [up ? "cut" : "restore", `link ${a} ${b} ${up ? "down" : "up"}`, up],
      ["lose 1 %", `loss ${a} ${b} 1%`, true], ["corrupt 1 %", `corrupt ${a} ${b} 1%`, true],
      [`cut ${a} → ${b}`, `oneway ${a} ${b}`, true], ["flap", `flap ${a} ${b} 2s x5`, true],
    ];
  }
  if (what.kind === "host") {
    const on = (state.hosts[what.name] || {on: true}).on;
    return [
      [on ? "switch off" : "switch on", `power ${what.name} ${on ? "off" : "on"}`, on],
      ["reboot", `reboot ${what.name}`, true],
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
      ["use", use_of(now)]);
    const known = (port) => !run || run.queues[port];
    for (const port of link.interfaces) if (known(port)) out.push([`port ${port}`, `${state.queues[port] || 0} bytes wait`]);
  }
  if (what.kind === "switch" && state.switches[what.name]) {
    const now = state.switches[what.name];
    out.push(["power", now.on ? "on" : "OFF"]);
    if (!run) {
      out.push(["marked", `${now.marked} packets, ${now.marks}/s`], ["trimmed", `${now.trimmed} packets, ${now.trims}/s`]);
    }
  }
  if (what.kind === "host" && state.hosts[what.name]) out.push(["power", state.hosts[what.name].on ? "on" : "OFF"]);
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
    const [from, to] = run || !plan.acts ? ["paths from here", "paths to here"] : ["send from here", "send to here"];
    for (const [label, id] of [[from, "from"], [to, "to"]]) {
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
  delete answer.dataset.ev;
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
  if (run) { readRecordedPaths(from, to, said); return; }
  try {
    const got = await fetch(`/evs?from=${encodeURIComponent(from)}&to=${encodeURIComponent(to)}`);
    const told = await got.json();
    if (!got.ok) throw new Error(told.error);
    if (from !== byId("from").value || to !== byId("to").value) return;
    evs = told.evs;
    const good = evs.filter((one) => one.state === "good").length;
    const dead = evs.filter((one) => one.state === "port_down").length;
    said.textContent = `${evs.length} paths` + (dead ? `, ${dead} dead: a port is down` : "")
      + (told.qps ? `, ${good} good; click one to light it up` : "; their state is known once something is sent");
  } catch (error) {
    evs = [];
    said.textContent = `${from} does not tell: ${error.message}`;
  }
  showPaths();
}

function showPaths() {
  const lit = evs.find((one) => one.ev === kept.ev);
  if (lit && byId("answer").dataset.ev === String(lit.ev)) byId("lit").textContent = litText(lit);
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
      const ports = one.ports_down && one.ports_down.length ? ` (${one.ports_down.join(", ")})` : "";
      const title = `EV 0x${one.ev.toString(16).padStart(4, "0")} ${one.state}${ports}: ${one.path.join(" ")}`
        + (one.address ? `, to ${one.address}` : "") + `; ${counted(one)}`;
      const button = make("button", {class: `ev ${one.state}`, title, "aria-label": title, "data-ev": one.ev,
        "aria-pressed": String(one.ev === kept.ev)}, row);
      button.addEventListener("click", () => light(one.ev === kept.ev ? null : one));
      if (String(one.ev) === focus) button.focus();
    }
  }
  for (const name of links.keys()) showLink(name);
}

function counted(one) {
  return one.lost === undefined ? `${one.sent ?? "?"} packets sent` : `${one.sent} sent, ${one.lost} lost`;
}

function light(one) {
  keep({ev: one ? one.ev : null});
  showPaths();
  const answer = byId("answer");
  answer.className = "";
  answer.replaceChildren();
  delete answer.dataset.ev;
  if (!one) return;
  answer.dataset.ev = one.ev;
  make("span", {id: "lit", text: litText(one)}, answer);
  if (run) return;
  const button = make("button", {text: "trace a packet along it"}, answer);
  const command = `trace ${byId("from").value} ${byId("to").value} 0x${one.ev.toString(16).padStart(4, "0")}`;
  button.addEventListener("click", () => act(command));
}

function litText(one) {
  return `EV 0x${one.ev.toString(16).padStart(4, "0")}, ${one.state}\n${one.path.join(" → ")}\n`
    + (one.address ? `outer address (locator and uSIDs) ${one.address}\n` : "") + `${counted(one)}\n`;
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
  for (const name of everywhere ? nodes.keys() : Object.keys({...news.switches, ...news.hosts})) showNode(name);
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
  stream.addEventListener("open", async () => {
    const now = await (await fetch("/plan")).text(); // the next run of a scenario may have another fabric
    if (listen.plan && listen.plan !== now) location.reload();
    listen.plan = now;
  });
  stream.onerror = () => {
    byId("summary").textContent = stream.readyState === EventSource.CLOSED
      ? "the fabric is down, or this address is an old one: `mrc dash` tells the new one"
      : "connection lost, trying again …";
  };
}

// ---- curves -------------------------------------------------------------------------------------------------

const SAMPLE_MS = 500, KEPT_SAMPLES = 600; // five minutes
const curves = new Curves(byId("curves"), run ? {pick: (time) => { seek(time); remember(); }, marks: run.log} : {clock: true});
const past = {times: [], planes: [], marks: [], trims: [], links: new Map()}; // of the live fabric

function sample() {
  if (!Object.keys(state.links).length) return;
  const sum = (plane) => plane.links.filter((link) => link.kind === "NIC-T0")
    .reduce((total, link) => total + (state.links[link.name] || {use: [0]}).use[0], 0);
  const of_switches = (key) => Object.values(state.switches).reduce((total, one) => total + one[key], 0);
  past.times.push(Date.now() / 1000);
  plan.planes.forEach((plane, number) => (past.planes[number] ??= []).push(sum(plane)));
  past.marks.push(of_switches("marks"));
  past.trims.push(of_switches("trims"));
  for (const [name, {link}] of links) {
    const one = past.links.get(name) || past.links.set(name, {up: [], down: [], waits: []}).get(name);
    const [up, down] = (state.links[name] || {use: [0, 0]}).use;
    one.up.push(up);
    one.down.push(down);
    one.waits.push(Math.max(0, ...link.interfaces.map((port) => state.queues[port] || 0)));
  }
  if (past.times.length > 2 * KEPT_SAMPLES) {
    const all = [past.times, ...past.planes, past.marks, past.trims];
    for (const one of past.links.values()) all.push(one.up, one.down, one.waits);
    for (const values of all) values.splice(0, KEPT_SAMPLES);
  }
  drawCurves();
}

function charts() {
  const chosen = kept.chosen && kept.chosen.kind === "link" ? kept.chosen.name : null;
  const by_plane = (rows) => rows.map((values, plane) => [`plane ${plane}`, values]);
  if (run) {
    const per_s = (values) => values.map((n) => n === null ? null : n / run.every_s);
    const lines = ["marked", "trimmed", "lost", "retransmitted", "dropped"]
      .filter((key) => run.counts[key].some((n) => n)).map((key) => [key, per_s(run.counts[key])]);
    const found = [["Data sent over each plane", "b/s", by_plane(run.planes_bps)],
      ["Received by each flow", "b/s", run.flows.slice(0, 8).map((one) => [one.label, one.bps])],
      ["Packets a second, whole fabric", "", lines]];
    if (chosen && use_over_time(chosen)) found.push([chosen, "b/s", use_over_time(chosen)]);
    const waits = chosen ? links.get(chosen).link.interfaces.filter((port) => run.queues[port]) : [];
    if (waits.length) found.push([`Bytes that wait: ${chosen}`, "B", waits.map((port) => [port, run.queues[port]])]);
    return found;
  }
  const found = [["Sent over each plane", "b/s", by_plane(past.planes)],
    ["Packets a second, all switches", "", [["marked", past.marks], ["trimmed", past.trims]]]];
  const one = chosen && past.links.get(chosen);
  if (one) {
    found.push([`${chosen}`, "b/s", [["away from the hosts", one.up], ["towards them", one.down]]],
      [`Bytes that wait: ${chosen}`, "B", [["deeper end", one.waits]]]);
  }
  return found;
}

function drawCurves() {
  const times = run ? run.times_s : past.times.slice(-KEPT_SAMPLES);
  if (times.length < 2 || document.hidden) return;
  const shown = charts().map(([title, unit, lines]) =>
    [title, unit, lines.map(([label, values]) => [label, run ? values : values.slice(-KEPT_SAMPLES)])]);
  const key = shown.map(([title]) => title).join("\n");
  if (run && drawCurves.key === key) return; // of a finished run nothing changes but what is chosen
  drawCurves.key = key;
  curves.show(shown, times, run ? "" : `, the last ${Math.round(times[times.length - 1] - times[0])} s`);
}

// ---- a finished run -----------------------------------------------------------------------------------------

let shownAt = 0; // seconds
const PLAY_MS = 100, PLAY_STEPS = 300; // a run is played in half a minute

function use_over_time(name) {
  const [away, towards] = run.links[name] || [];
  return away && [["away from the hosts", away], ["towards them", towards]];
}

function useAt(name, at) {
  const ways = run.links[name];
  return ways && ways[0][at] !== null ? [ways[0][at], ways[1][at]] : null;
}

function stateAt(states, time) {
  let now = states.length ? states[0][1] : "good";
  for (const [at, one] of states) if (at <= time) now = one;
  return now;
}

function readRecordedPaths(from, to, said) {
  const pair = run.pairs[`${from} ${to}`];
  const at = interval();
  const counts = Object.entries(run.packets).filter(([flow]) => flow.endsWith(`:${from}-${to}`)).map(([, by_ev]) => by_ev);
  evs = (pair || []).map((one) => ({...one, state: stateAt(one.states, shownAt),
    sent: counts.length ? counts.reduce((sum, by_ev) => sum + (by_ev[one.ev] || []).slice(0, at + 1)
      .reduce((a, b) => a + b, 0), 0) : undefined}));
  const good = evs.filter((one) => one.state === "good").length;
  said.textContent = pair ? `${evs.length} paths, ${good} good; click one to light it up`
    : `nothing recorded of these two; pairs: ${Object.keys(run.pairs).slice(0, 6).join(", ") || "none"}`;
  showPaths();
}

// The pair whose paths changed most: what there is to see.
function busiestPair() {
  const changes = (pair) => run.pairs[pair].reduce((sum, one) => sum + one.states.length, 0) / run.pairs[pair].length;
  return Object.keys(run.pairs).reduce((best, pair) => best && changes(best) >= changes(pair) ? best : pair, "");
}

function activeFaults() {
  return run.faults.filter((one) => one.from <= shownAt && shownAt < one.to);
}

function interval() {
  const at = run.times_s.findIndex((time) => time >= shownAt - 1e-9);
  return at < 0 ? run.times_s.length - 1 : at;
}

function seek(time) {
  shownAt = Math.min(Math.max(time, 0), run.duration_s);
  const at = interval();
  const active = activeFaults();
  const off = new Set(active.filter((one) => one.effect === "off").flatMap((one) => one.where));
  const down = new Set(active.filter((one) => one.effect === "down").flatMap((one) => one.where));
  for (const part of Object.keys(state)) state[part] = {};
  for (const [name, {link}] of links) {
    state.links[name] = {up: !down.has(name) && !link.nodes.some((node) => off.has(node)), rate: run.rates[name],
      use: useAt(name, at)};
    for (const port of link.interfaces) if (run.queues[port] && run.queues[port][at]) state.queues[port] = run.queues[port][at];
  }
  for (const name of nodes.keys()) state[plan.hosts.includes(name) ? "hosts" : "switches"][name] = {on: !off.has(name)};
  active.forEach((one, number) => one.where.forEach((where) => {
    state.injected[`${number} ${where}`] = {kind: one.kind, where, detail: one.detail};
  }));
  (run.found || []).filter((one) => one.from <= shownAt && shownAt < one.to).forEach((one, number) => {
    state.faults[number] = {text: one.text, location: one.where.join(" or "), sources: []};
  });
  run.flows.forEach((one) => {
    const done = Math.min(one.bytes, one.bps.slice(0, at + 1).reduce((sum, bps) => sum + bps * run.every_s / 8, 0));
    state.transfers[one.label] = {label: `${one.label}: ${(done / 1e6).toFixed(1)} of ${(one.bytes / 1e6).toFixed(1)} MB`,
      state: rate(one.bps[at] || 0), bytes: one.bytes, bytes_done: done};
  });
  run.collectives.forEach((one) => {
    const over = one.iterations.filter(([, end]) => end <= shownAt).length;
    state.transfers[one.label] = {label: `${one.label}: ${over} of ${one.planned} iterations`, bytes: 0,
      state: one.wrong ? `${one.wrong} WRONG elements` : one.sums && over ? "sums right" : ""};
  });
  run.log.filter((one) => one.at <= shownAt).slice(-300).forEach((one, number) => { state.log[number] = one; });
  for (const name of links.keys()) showLink(name);
  for (const name of nodes.keys()) showNode(name);
  const up = Object.values(state.links).filter((one) => one.up).length;
  const sent = run.planes_bps.reduce((sum, row) => sum + (row[at] || 0), 0);
  const each = ["marked", "trimmed", "lost"].map((key) => run.counts[key][at] === null ? `${key}: not read`
    : `${Math.round((run.counts[key][at] || 0) / run.every_s)} ${key}/s`);
  byId("summary").textContent = `${up} of ${links.size} links up · hosts send ${rate(sent)} · ${each.join(", ")}`;
  byId("time").value = shownAt;
  byId("now").textContent = `${(shownAt / timeUnit().size).toFixed(2)} of ${moment(run.duration_s, 1)}`;
  showLists();
  showCard();
  readPaths();
  drawCurves();
  curves.moveTo(shownAt);
}

// Seconds, to a hundredth of the unit that the page shows.
const remember = () => history.replaceState(null, "", `#t=${shownAt.toFixed(2 - Math.round(Math.log10(timeUnit().size)))}`);

function player() {
  byId("player").hidden = false;
  if (!kept.chosen) byId("card").firstChild.textContent = "Click a link, a switch or a host to see what it did.";
  byId("said").textContent = run.said;
  document.title = run.title;
  const slider = byId("time"), button = byId("play");
  slider.max = run.duration_s;
  slider.step = run.every_s / 4;
  for (const one of run.log) {
    make("rect", {class: one.kind, x: 1000 * one.at / run.duration_s - 1, y: one.kind === "made" ? 0 : 4, width: 2, height: 6},
      byId("marks"), SVG);
  }
  slider.addEventListener("input", () => seek(Number(slider.value)));
  slider.addEventListener("change", remember);
  let playing = 0;
  const stop = () => { clearInterval(playing); playing = 0; button.textContent = "play"; remember(); };
  button.addEventListener("click", () => {
    if (playing) { stop(); return; }
    if (shownAt >= run.duration_s) seek(0);
    button.textContent = "stop";
    playing = setInterval(() => {
      seek(shownAt + run.duration_s / PLAY_STEPS);
      if (shownAt >= run.duration_s) stop();
    }, PLAY_MS);
  });
  const wanted = /^#t=([\d.]+)$/.exec(location.hash);
  seek(wanted ? Number(wanted[1]) : 0);
}

// ---- begin --------------------------------------------------------------------------------------------------

async function begin() {
  if (run) {
    plan = run.plan;
    draw();
    player();
    return;
  }
  const got = await fetch("/plan");
  if (!got.ok) { byId("summary").textContent = (await got.json()).error; return; }
  plan = await got.json();
  draw();
  byId("heal").addEventListener("click", () => act("heal"));
  byId("send").addEventListener("click", () => act(`send ${byId("from").value} ${byId("to").value} 16M`));
  listen();
  readPaths();
  setInterval(() => { if (!document.hidden) readPaths(); }, PATHS_EVERY_MS);
  setInterval(sample, SAMPLE_MS);
}

begin();
