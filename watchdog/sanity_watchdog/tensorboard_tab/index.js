// The Watchdog tab. TensorBoard imports this module into an iframe of its own origin and calls render().
// Names and messages come from other people's programs: they enter the page as text, never as markup.

const POLL_MS = 5000;
const ALERTS_SHOWN = 100; // more on demand; ten thousand rows at once would make typing slow
const SUBJECTS_SHOWN = 4;
const NAME_SHOWN = 120; // characters of one name in a list
const ROW = 16; // height of a layer in the heat map, px
const AXIS = 20;
const CELL = 48; // widest column of the heat map, px

const SEVERITIES = ["error", "warning", "info"];
const WORDS = { error: "error", warning: "warning", info: "note" };
const VERDICTS = ["fail", "incomplete", "warn", "running", "pass"];
const VITALS = ["runtime", "parameters", "gradients"];
const MEANING = {
  pass: "nothing is wrong",
  warn: "something is very likely wrong",
  fail: "the run cannot be right",
  incomplete: "a check broke, or nothing was judged",
  running: "nothing is wrong so far",
};

const CSS = `
:root {
  color-scheme: light;
  --bg: #fff; --panel: #f5f7f9; --fg: #1d2126; --muted: #565e68; --line: #d3d9df; --hover: #eaeff4;
  --error: #b0231b; --warning: #8a4b00; --info: #0a58a6; --pass: #17692d; --accent: #0a58a6;
  --quiet: #bfe3c8; --tolerated: #f3e3b5;
}
:root.dark {
  color-scheme: dark;
  --bg: #303030; --panel: #3a3a3a; --fg: #f2f2f2; --muted: #c6cad0; --line: #555a61; --hover: #444;
  --error: #ff9d94; --warning: #f3c368; --info: #9cc4ff; --pass: #87dba1; --accent: #9cc4ff;
  --quiet: #2f6b3f; --tolerated: #6b5a24;
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg); font: 14px/1.45 Roboto, "Segoe UI", system-ui, sans-serif; }
h1, h2, h3, h4, p, ul, ol, dl, dd, figure { margin: 0; padding: 0; }
ul, ol { list-style: none; }
h1 { font-size: 20px; line-height: 1.3; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 20px 0 6px; }
h4 { font-size: 13px; margin: 12px 0 2px; color: var(--muted); }
code, pre, .mono { font-family: ui-monospace, "Roboto Mono", Menlo, Consolas, monospace; font-size: 12.5px; }
code, .wrap { overflow-wrap: anywhere; }
pre { margin: 4px 0; padding: 8px 10px; background: var(--panel); border: 1px solid var(--line); border-radius: 4px;
  white-space: pre-wrap; overflow-wrap: anywhere; max-height: 300px; overflow-y: auto; }
a { color: var(--accent); }
button, input, select { font: inherit; color: inherit; background: var(--bg); border: 1px solid var(--muted); border-radius: 5px;
  padding: 3px 9px; min-height: 30px; max-width: 100%; }
button { cursor: pointer; }
input::placeholder { color: var(--muted); opacity: 1; }
button:hover { background: var(--hover); }
button[aria-pressed="true"], [role="tab"][aria-selected="true"] { border-color: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 1px; }
[inert] { opacity: 0.35; }
[hidden] { display: none !important; }
svg.icon { width: 14px; height: 14px; flex: none; fill: currentColor; vertical-align: -2px; }
.muted { color: var(--muted); }
.small { font-size: 12.5px; }
.error, .fail { color: var(--error); } .warning, .warn, .incomplete { color: var(--warning); }
.info, .running { color: var(--info); } .pass { color: var(--pass); }
.badge { display: inline-flex; gap: 5px; align-items: center; border: 1.5px solid currentColor; border-radius: 5px;
  padding: 0 7px; font-size: 12px; font-weight: 700; line-height: 20px; text-transform: uppercase; white-space: nowrap; }
.shell { display: grid; grid-template-columns: 250px minmax(0, 1fr); min-height: 100vh; }
nav { border-right: 1px solid var(--line); background: var(--panel); padding: 12px 10px; }
nav .list { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; padding: 2px; }
nav h2 { margin: 0 2px 6px; }
nav input { width: 100%; margin-bottom: 6px; }
nav button { display: block; width: 100%; text-align: left; border-color: transparent; background: none; padding: 6px 8px; margin-bottom: 2px; }
nav button:hover { background: var(--hover); }
nav button[aria-current="true"] { background: var(--bg); border-color: var(--accent); box-shadow: inset 3px 0 0 var(--accent); }
nav .name { display: flex; gap: 7px; font-weight: 600; overflow-wrap: anywhere; align-items: baseline; }
nav .name span { min-width: 0; }
nav .small { padding-left: 21px; }
main { padding: 12px 20px 40px; min-width: 0; }
.title { display: flex; gap: 10px; align-items: center; flex-wrap: wrap; }
.vitals { display: flex; flex-wrap: wrap; gap: 10px; margin: 10px 0 12px; }
.card { border: 1px solid var(--line); border-radius: 6px; padding: 6px 12px 8px; flex: 1 1 130px; }
.card.first { flex: none; }
.card h2 { margin: 0; font-size: 12.5px; color: var(--muted); font-weight: 600; }
.card p { overflow-wrap: anywhere; }
.gauge text { fill: var(--fg); font-size: 12px; }
[role="tablist"] { display: flex; gap: 4px; flex-wrap: wrap; border-bottom: 1px solid var(--line); }
[role="tab"] { border: 0; border-bottom: 3px solid transparent; border-radius: 0; padding: 5px 12px; color: var(--muted); font-weight: 600; }
[role="tab"][aria-selected="true"] { border-color: var(--accent); color: var(--fg); }
[role="tabpanel"] { padding-top: 8px; }
.bar { display: flex; gap: 8px; flex-wrap: wrap; align-items: center; margin-bottom: 8px; }
.bar label { display: inline-flex; gap: 6px; align-items: center; }
.bar .grow { flex: 1 1 190px; } .bar .grow input { width: 100%; }
#code { width: 112px; }
.about { margin: 0 0 8px; }
.toggle { display: inline-flex; gap: 6px; align-items: center; }
.toggle[aria-pressed="false"] { color: var(--muted); border-style: dashed; }
.alert { border: 1px solid var(--line); border-left: 4px solid currentColor; border-radius: 6px; margin-bottom: 8px; }
.alert > * { color: var(--fg); }
.alert.gone { border-left-style: dotted; }
.head { display: grid; grid-template-columns: 98px minmax(0, 1fr) auto; gap: 2px 12px; padding: 8px 12px; cursor: pointer; }
.head:hover { background: var(--panel); }
.head .badge { place-self: start; }
.alert h3 { font-size: 14px; line-height: 1.35; }
.alert h3 button { border: 0; background: none; padding: 0; min-height: 0; font-weight: 700; text-align: left; overflow-wrap: anywhere; }
.alert h3 button::after { content: "▸"; padding-left: 7px; color: var(--muted); }
.alert h3 button[aria-expanded="true"]::after { content: "▾"; }
.alert p { overflow-wrap: anywhere; }
.when { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.details { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1.15fr); gap: 4px 28px; padding: 4px 14px 14px;
  border-top: 1px solid var(--line); }
.details .plain { border: 0; padding: 0; min-height: 0; background: none; color: var(--accent); text-align: left; text-decoration: underline;
  overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: fit-content(45%) minmax(0, 1fr); gap: 2px 14px; }
.facts dt { color: var(--muted); overflow-wrap: anywhere; } .facts dd { overflow-wrap: anywhere; line-height: 20.3px; }
.scroll { max-height: 190px; overflow-y: auto; }
.silence { display: flex; gap: 8px; align-items: start; } .silence code { flex: 1; padding: 5px 8px; background: var(--panel); border-radius: 4px; }
.page p + p { margin-top: 6px; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: 5px 10px; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
thead th { color: var(--muted); font-weight: 600; }
.sides { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; max-height: 70vh; overflow-y: auto; }
.sides table { min-width: 100%; }
.sides th[scope="row"] { position: sticky; left: 0; background: var(--bg); min-width: 130px; max-width: 220px; font-weight: 600; }
.sides thead th { position: sticky; top: 0; background: var(--bg); z-index: 1; }
.sides thead th:first-child { left: 0; z-index: 2; }
.sides td, .sides thead th { min-width: 108px; max-width: 260px; }
.sides tr.differs th[scope="row"] { box-shadow: inset 3px 0 0 var(--accent); }
.heat { position: relative; overflow-y: auto; max-height: 460px; border: 1px solid var(--line); border-radius: 6px; }
.heat canvas { position: sticky; top: 0; left: 0; display: block; }
.swatch { display: inline-block; width: 13px; height: 13px; border: 1px solid var(--muted); vertical-align: -2px; }
.ramp { display: inline-block; width: 150px; height: 12px; border: 1px solid var(--muted); vertical-align: -1px; }
.reading { min-height: 1.5em; margin: 4px 0; }
.notice { border: 1px solid currentColor; border-radius: 6px; padding: 6px 12px; margin-bottom: 10px; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (max-width: 900px) {
  .shell { grid-template-columns: minmax(0, 1fr); min-height: 0; }
  nav { border-right: 0; border-bottom: 1px solid var(--line); padding: 8px 14px; }
  nav .list { position: static; max-height: 128px; }
  nav h2 { display: inline-block; }
  nav ul { display: flex; flex-wrap: wrap; gap: 2px; }
  nav button .small { display: none; }
  main { padding: 10px 14px 40px; }
  .details { grid-template-columns: minmax(0, 1fr); }
  .head { grid-template-columns: 98px minmax(0, 1fr); }
  .when { grid-column: 2; text-align: left; white-space: normal; display: flex; gap: 0 14px; flex-wrap: wrap; }
}
`;

const ICONS = {
  cross: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm3.2 9-1.2 1.2-2-2-2 2L4.8 10l2-2-2-2L6 4.8l2 2 2-2L11.2 6l-2 2Z",
  triangle: "M8 1 .8 14.5h14.4ZM7.1 6h1.8v4.2H7.1Zm0 5.2h1.8v1.7H7.1Z",
  letter: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm-.9 2.9h1.8v1.7H7.1Zm0 2.9h1.8v5.3H7.1Z",
  tick: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm-1 10.3L3.7 8 5 6.7l2 2 4-4L12.3 6Z",
  dash: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1ZM4 7.1h8v1.8H4Z",
  ring: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm0 1.8v10.4a5.2 5.2 0 0 1 0-10.4Z",
};
const ICON_OF = {
  error: "cross", fail: "cross", warning: "triangle", warn: "triangle", info: "letter",
  pass: "tick", incomplete: "dash", running: "ring",
};

// ---- elements and text

/** An element: attributes, `on…` listeners, children; nothing is ever parsed as HTML. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false && c !== ""));
  return element;
}

function drawn(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const icon = (kind) =>
  drawn("svg", { class: `icon ${kind}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, drawn("path", { d: ICONS[ICON_OF[kind]], "fill-rule": "evenodd" }));
const badge = (kind) => h("span", { class: `badge ${kind}` }, icon(kind), WORDS[kind] ?? kind);

/** A number as people read it: four significant digits, integers whole; NaN and the infinities as Python writes them. */
function number(value) {
  if (value && typeof value === "object" && "$f" in value) return value.$f;
  if (typeof value !== "number") return value === null || value === undefined ? "none" : String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size < 1e-4 || size >= 1e7 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
}

const short = (value) => String(Number(value.toPrecision(3)));
const finite = (value) => typeof value === "number" && Number.isFinite(value);
const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const cut = (text, limit = NAME_SHOWN) => (text.length > limit ? text.slice(0, limit - 1) + "…" : text);
const breakable = (text) => cut(text).split(/(?<=\/)/).flatMap((part) => [part, h("wbr")]);
const tally = (counts) => SEVERITIES.filter((s) => counts[s]).map((s) => counted(counts[s], WORDS[s])).join(", ");
const span = (first, last) => (last > first ? `steps ${number(first)}–${number(last)}` : `step ${number(first)}`);
const runName = (run) => run || "(log folder)";

function ago(seconds) {
  const passed = Date.now() / 1000 - seconds;
  if (passed < 90) return `${Math.max(0, Math.round(passed))} s ago`;
  if (passed < 5400) return `${Math.round(passed / 60)} min ago`;
  return passed < 129600 ? `${Math.round(passed / 3600)} h ago` : `${Math.round(passed / 86400)} days ago`;
}

/** Inline markup of a check's page: `code`, **strong**, *emphasis*. */
function inline(text) {
  return text.split(/(``[^`]+``|`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/).map((part) => {
    if (part.startsWith("`")) return h("code", {}, part.replace(/^`+|`+$/g, ""));
    if (part.startsWith("**")) return h("strong", {}, part.slice(2, -2));
    return part.length > 2 && part.startsWith("*") && part.endsWith("*") ? h("em", {}, part.slice(1, -1)) : part;
  });
}

/** A check's page: code between fences, and paragraphs. */
function prose(text) {
  return text.split(/^```\w*\n([\s\S]*?)\n```$/m).flatMap((part, i) => (i % 2 ? [h("pre", {}, part)] : paragraphs(part)));
}

/** Paragraphs that may begin with a bold heading, and lists. */
function paragraphs(text) {
  const found = [];
  for (const block of text.split(/\n\s*\n/)) {
    if (block.split("\n").every((line) => /^([-*] |\s)/.test(line))) {
      const items = block.split(/^[-*] /m).filter((item) => item.trim());
      found.push(h("ul", {}, items.map((item) => h("li", {}, "• ", inline(item.replace(/\s+/g, " ").trim())))));
      continue;
    }
    const heading = /^\*\*([^*]+?)\.?\*\*\s*/.exec(block);
    if (heading) found.push(h("h4", {}, heading[1]));
    const rest = block.slice(heading ? heading[0].length : 0).replace(/\s+/g, " ").trim();
    if (rest) found.push(h("p", {}, inline(rest)));
  }
  return found;
}

/** Runs `change` and gives the focus back to the element that had it, by its id. */
function keepingFocus(change) {
  const id = document.activeElement?.id;
  change();
  if (id && document.activeElement?.id !== id) document.getElementById(id)?.focus({ preventScroll: true });
}

// ---- data

const state = { runs: [], selected: null, detail: null, pictures: null, tab: "alerts", open: new Set(), compared: null };
const pages = new Map();
const numbers = new Map(); // keys of the data to short ids for the page
let panels = {};
let seenRuns = "";
let asked = 0;

function idOf(kind, key) {
  const whole = `${kind}\n${key}`;
  if (!numbers.has(whole)) numbers.set(whole, `${kind}-${numbers.size}`);
  return numbers.get(whole);
}

async function get(path, query = {}) {
  const answer = await fetch(`./${path}?${new URLSearchParams(query)}`, { credentials: "same-origin" });
  const text = await answer.text();
  if (!answer.ok) {
    let reason = `HTTP ${answer.status}`;
    try { reason = JSON.parse(text).error ?? reason; } catch { /* not ours */ }
    throw new Error(reason);
  }
  return text;
}

async function poll() {
  try {
    const text = await get("runs");
    say("");
    if (text === seenRuns) return void showClock();
    seenRuns = text;
    const before = row()?.stamp;
    state.runs = JSON.parse(text).runs.sort((a, b) => VERDICTS.indexOf(a.verdict) - VERDICTS.indexOf(b.verdict) || compareNames(a.run, b.run));
    if (!row()) state.selected = state.runs.some((r) => r.run === remembered()) ? remembered() : (state.runs[0]?.run ?? null);
    if (state.detail?.run !== state.selected || JSON.stringify(row()?.stamp) !== JSON.stringify(before)) await load();
    else show();
  } catch (error) {
    say(`No answer from TensorBoard (${error.message}); asking again every ${POLL_MS / 1000} s.`);
  }
}

const compareNames = (a, b) => a.localeCompare(b, "en", { numeric: true });
const row = () => state.runs.find((r) => r.run === state.selected);

/** Fetches what is shown of the selected run. Answers that were overtaken by a later choice are dropped. */
async function load() {
  const mine = ++asked;
  const run = state.selected;
  if (run === null) { state.detail = state.pictures = null; return void show(); }
  const detail = JSON.parse(await get("run", { run }));
  if (mine !== asked) return;
  if (state.detail?.run !== run || state.tab !== "layers") state.pictures = null;
  state.detail = detail;
  for (const a of detail.alerts) {
    a.key = `${a.fit} ${a.code} ${a.where || a.stage}`;
    a.text = [a.code, a.name, a.message, a.where, a.hint, ...a.subjects].join(" ").toLowerCase();
  }
  show();
  await loadLayers();
}

async function loadLayers() {
  const run = state.selected;
  if (state.tab !== "layers" || !row()?.layers || state.detail?.run !== run) return;
  const layers = JSON.parse(await get("layers", { run }));
  if (run !== state.detail?.run) return;
  state.pictures = layers.pictures.map(unpacked);
  show();
}

function unpacked(picture) {
  const bytes = Uint8Array.from(atob(picture.cells), (c) => c.charCodeAt(0));
  return { ...picture, cells: new Uint16Array(bytes.buffer) };
}

function select(run) {
  if (run === state.selected) return;
  state.selected = run;
  state.open.clear();
  parts.body.inert = true;
  try { sessionStorage.setItem("watchdog.run", run); } catch { /* storage is off */ }
  load().catch((error) => say(`This run cannot be read (${error.message}).`));
  keepingFocus(showRuns);
}

function remembered() {
  try { return sessionStorage.getItem("watchdog.run"); } catch { return null; }
}

function openTab(tab) {
  state.tab = tab;
  if (!state.pictures) loadLayers().catch((error) => say(`The layers cannot be read (${error.message}).`));
  show();
}

// ---- the page

let parts = {};

function build() {
  parts = {
    notice: h("p", { class: "notice warning", role: "status", hidden: true }),
    filter: h("input", { type: "search", placeholder: "Filter runs", "aria-label": "Filter runs", oninput: showRuns }),
    runs: h("ul"),
    runsTitle: h("h2"),
    head: h("header"),
    tabs: h("div", { role: "tablist", "aria-label": "Views of the run", onkeydown: tabKeys }),
    empty: h("div", { hidden: true }, h("h2", {}, "No watchdog records yet"),
      h("p", {}, "Add ", h("code", {}, "callbacks=[SanityWatchdog()]"), " to the Trainer and train; this page looks again by itself.")),
  };
  panels = { alerts: alertsPanel(), layers: layersPanel(), checks: checksPanel(), compare: comparePanel() };
  for (const [name, panel] of Object.entries(panels)) {
    panel.root.id = `panel-${name}`;
    panel.root.setAttribute("role", "tabpanel");
    panel.root.setAttribute("aria-labelledby", `tab-${name}`);
  }
  parts.body = h("div", {}, parts.head, parts.tabs, Object.values(panels).map((p) => p.root));
  document.body.append(
    h("div", { class: "shell" },
      h("nav", { "aria-label": "Runs" }, h("div", { class: "list" }, parts.runsTitle, parts.filter, parts.runs)),
      h("main", {}, parts.notice, parts.empty, parts.body)));
}

function say(text) {
  parts.notice.textContent = text;
  parts.notice.hidden = !text;
}

function show() {
  keepingFocus(() => {
    parts.empty.hidden = state.runs.length > 0;
    parts.body.hidden = !state.detail;
    parts.body.inert = state.detail?.run !== state.selected;
    showRuns();
    if (!state.detail) return;
    showHead();
    showTabs();
    for (const [name, panel] of Object.entries(panels)) {
      panel.root.hidden = name !== state.tab;
      if (name === state.tab) panel.update();
    }
  });
}

function showRuns() {
  const many = state.runs.length > 8;
  const words = parts.filter.value.toLowerCase();
  parts.filter.hidden = !many;
  parts.runsTitle.textContent = counted(state.runs.length, "run");
  const shown = state.runs.filter((r) => !many || r.run.toLowerCase().includes(words));
  keepingFocus(() => parts.runs.replaceChildren(...shown.slice(0, 500).map(runItem)));
  if (shown.length > 500) parts.runs.append(h("li", { class: "small muted" }, `and ${shown.length - 500} more: filter by name`));
}

function runItem(r) {
  const facts = [tally(r.counts) || "no alerts", r.step ? `step ${number(r.step)}` : ""].filter(Boolean).join(" · ");
  return h("li", {}, h("button", { id: idOf("run", r.run), "aria-current": String(r.run === state.selected), onclick: () => select(r.run) },
    h("span", { class: "name" }, icon(r.verdict), h("span", {}, h("span", { class: "unseen" }, `${r.verdict}: `), breakable(runName(r.run)))),
    h("div", { class: "small muted" }, facts)));
}

function showHead() {
  const d = state.detail;
  parts.clock = h("p", { class: "muted" });
  parts.head.replaceChildren(
    h("div", { class: "title" }, badge(d.verdict), h("h1", {}, breakable(runName(d.run)))),
    parts.clock,
    d.stopped_by ? h("p", { class: "error wrap" }, "Stopped by ", d.stopped_by) : "",
    d.unreadable ? h("p", { class: "warning" }, `${counted(d.unreadable, "record")} could not be read.`) : "",
    h("div", { class: "vitals" }, gauge(d), vitalCards(d)));
  showClock();
}

function showClock() {
  const d = state.detail;
  if (!d || !parts.clock) return;
  const what = d.over ? `Ended at step ${number(d.step)} after ${counted(d.batches, "batch").replace("batchs", "batches")}` : `No end seen yet; last news ${ago(d.updated)} at step ${number(d.step)}`;
  const others = [d.fits > 1 ? `the last of ${d.fits} fits; ${counted(d.earlier, "alert")} in earlier ones` : "", d.world > 1 ? `${d.world} processes` : "",
    ...["torch", "lightning"].filter((v) => d.versions[v]).map((v) => `${v} ${cut(d.versions[v], 30)}`)];
  parts.clock.textContent = [`${tally(d.counts) || "No alerts"}: ${MEANING[d.verdict]}`, what, ...others].filter(Boolean).join(" · ");
}

function vitalCards(d) {
  const keys = [...VITALS, ...Object.keys(d.vitals).filter((k) => !VITALS.includes(k) && k !== "loss")];
  const cards = keys.filter((k) => d.vitals[k]).map((k) =>
    h("section", { class: "card" }, h("h2", {}, k[0].toUpperCase() + k.slice(1)), h("p", {}, cut(d.vitals[k], 200))));
  return d.loss || !d.vitals.loss ? cards : [h("section", { class: "card" }, h("h2", {}, "First loss"), h("p", {}, cut(d.vitals.loss, 200))), ...cards];
}

/** The first loss against what a network that knows nothing must have. */
function gauge(d) {
  const loss = d.loss;
  if (!loss) return "";
  const { seen, expected, note, tolerance, slack } = loss;
  const limit = tolerance + slack;
  if (!finite(expected)) return h("section", { class: "card" }, h("h2", {}, "First loss"), h("p", {}, h("strong", {}, number(seen)), " (nothing to compare it with)"));
  const known = finite(seen);
  const alarm = d.codes.WD101?.severity ?? (known ? null : "error");
  const off = known ? seen - expected : NaN;
  const words = !known ? "not a number" : Math.abs(off) <= note ? "as expected" : `${short(Math.abs(off))} ${off > 0 ? "above" : "below"}`;
  const width = 330, left = 8, right = width - 8;
  const top = Math.min(Math.max(expected + limit, known ? seen : 0) * 1.12, (expected + limit) * 5);
  const low = Math.min(0, known ? Math.max(seen, -top) : 0);
  const x = (v) => left + ((right - left) * (Math.min(Math.max(v, low), top) - low)) / (top - low);
  const band = (from, to, colour) => drawn("rect", { x: x(from), y: 22, width: Math.max(0, x(to) - x(from)), height: 12, fill: `var(--${colour})` });
  const anchor = (v) => (x(v) < 60 ? "start" : x(v) > width - 60 ? "end" : "middle");
  const label = (v, y, text, bold) => drawn("text", { x: anchor(v) === "start" ? left : anchor(v) === "end" ? right : x(v), y, "text-anchor": anchor(v), "font-weight": bold ? 700 : 400 }, text);
  const picture = drawn("svg", { class: "gauge", width, height: 54, viewBox: `0 0 ${width} 54`, role: "img",
    "aria-label": `First loss ${number(seen)}, expected ${loss.name} = ${number(expected)}, tolerance ${number(limit)}` },
  drawn("rect", { x: left, y: 22, width: right - left, height: 12, fill: "var(--panel)", stroke: "var(--muted)" }),
  band(expected - note, expected + limit, "tolerated"), band(expected - note, expected + note, "quiet"),
  drawn("line", { x1: x(expected), x2: x(expected), y1: 19, y2: 38, stroke: "var(--fg)", "stroke-width": 2 }),
  label(expected, 50, `${cut(loss.name, 24)} = ${number(expected)}`));
  if (known) picture.append(drawn("path", { d: `M${x(seen)} 31l-6-14h12z`, fill: `var(--${alarm ?? "pass"})`, stroke: "var(--bg)" }), label(seen, 12, number(seen), true));
  return h("section", { class: "card first" },
    h("h2", {}, "First loss ", h("span", { class: alarm ?? "pass" }, icon(alarm ?? "pass"), " ", words)),
    picture,
    h("p", { class: "small muted" }, `green: quiet, ±${short(note)} · yellow: noted, tolerance ${short(limit)}`));
}

function showTabs() {
  const d = state.detail;
  const names = { alerts: `Alerts (${d.alerts.length.toLocaleString("en")})`, layers: "Layers", checks: "Checks", compare: "Compare runs" };
  parts.tabs.replaceChildren(...Object.entries(names).map(([name, text]) =>
    h("button", { role: "tab", id: `tab-${name}`, "aria-selected": String(name === state.tab), "aria-controls": `panel-${name}`,
      tabindex: name === state.tab ? 0 : -1, onclick: () => openTab(name) }, text)));
}

function tabKeys(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const names = Object.keys(panels);
  openTab(names[(names.indexOf(state.tab) + step + names.length) % names.length]);
  document.getElementById(`tab-${state.tab}`).focus();
}

// ---- alerts

function alertsPanel() {
  const chosen = new Set(SEVERITIES);
  let shown = ALERTS_SHOWN, of = null;
  const again = () => { shown = ALERTS_SHOWN; update(); };
  const toggles = Object.fromEntries(SEVERITIES.map((s) => [s, h("button", { id: `severity-${s}`, class: "toggle", "aria-pressed": "true", onclick: () => {
    chosen.has(s) ? chosen.delete(s) : chosen.add(s);
    again();
  } })]));
  const code = h("select", { id: "code", "aria-label": "Code", onchange: again });
  const words = h("input", { id: "words", type: "search", "aria-label": "Search", placeholder: "Search names and words", oninput: again });
  const order = h("select", { id: "order", "aria-label": "Order", onchange: again }, ["likely cause first", "earliest first", "most often first"].map((o) => h("option", {}, o)));
  const matches = h("span", { class: "muted", role: "status" });
  const list = h("ol", { onkeydown: alertKeys });
  const more = h("button", { onclick: () => { shown += ALERTS_SHOWN; update(); } });
  const bar = h("div", { class: "bar", role: "group", "aria-label": "Filter alerts" }, Object.values(toggles),
    code, h("span", { class: "grow" }, words), order, matches);
  const root = h("section", {}, bar, list, more);

  function update() {
    const d = state.detail;
    if (of !== d.run) { of = d.run; shown = ALERTS_SHOWN; code.value = ""; }
    bar.hidden = !d.alerts.length;
    for (const s of SEVERITIES) {
      toggles[s].replaceChildren(icon(s), counted(d.alerts.filter((a) => a.severity === s).length, WORDS[s]));
      toggles[s].setAttribute("aria-pressed", String(chosen.has(s)));
    }
    const was = code.value;
    const known = new Map(d.alerts.map((a) => [a.code, a.name]));
    const codes = [...known.keys()].sort();
    code.replaceChildren(h("option", { value: "" }, "all codes"), ...codes.map((c) => h("option", { value: c }, cut(`${c} ${known.get(c)}`, 40))));
    code.value = codes.includes(was) ? was : "";
    const text = words.value.trim().toLowerCase();
    const found = d.alerts.filter((a) => chosen.has(a.severity) && (!code.value || a.code === code.value) && (!text || a.text.includes(text)));
    if (order.selectedIndex === 1) found.sort((a, b) => a.step - b.step);
    if (order.selectedIndex === 2) found.sort((a, b) => b.count - a.count);
    matches.hidden = found.length === d.alerts.length;
    matches.textContent = found.length < d.alerts.length ? `${found.length.toLocaleString("en")} of ${d.alerts.length.toLocaleString("en")}` : "";
    keepingFocus(() => list.replaceChildren(...found.slice(0, shown).map((a) => alertItem(a, d))));
    if (!found.length) list.append(h("li", {}, d.alerts.length ? "No alert matches the filter." : quietWords(d)));
    more.hidden = found.length <= shown;
    more.textContent = `Show ${Math.min(ALERTS_SHOWN, found.length - shown)} more of ${(found.length - shown).toLocaleString("en")}`;
  }
  return { root, update, search(text) { words.value = text; } };
}

function quietWords(d) {
  if (!d.over) return "No alerts so far.";
  const looked = `${counted(d.judged.length, "check")} judged this run and found nothing; ${d.skipped ? Object.keys(d.skipped).length : 0} had nothing to look at (see Checks).`;
  return d.verdict === "incomplete" ? `No alerts, but ${MEANING.incomplete}: see Checks.` : looked;
}

function alertItem(a, d) {
  const open = state.open.has(a.key);
  const id = idOf("alert", a.key);
  const subjects = a.subjects.slice(0, SUBJECTS_SHOWN).map((s) => cut(s)).join(", ");
  const rest = a.subjects_in_all - Math.min(a.subjects_in_all, SUBJECTS_SHOWN);
  const places = [subjects + (rest > 0 ? ` and ${rest.toLocaleString("en")} more` : ""), cut(a.where, 200), a.stage === "train" ? "" : cut(a.stage, 30),
    a.ranks.length > 1 || a.ranks[0] ? `rank ${a.ranks.slice(0, 8).join(", ")}` : ""].filter(Boolean);
  const button = h("button", { id, "aria-expanded": String(open), "aria-controls": `${id}-details` }, `${cut(a.code, 12)} ${cut(a.name, 60)}`);
  const item = h("li", { class: `alert ${a.severity}${a.cleared ? " gone" : ""}` });
  const head = h("div", { class: "head", onclick: (event) => {
    if (event.target !== button && String(getSelection())) return;
    state.open.has(a.key) ? state.open.delete(a.key) : state.open.add(a.key);
    keepingFocus(() => item.replaceWith(alertItem(a, d)));
  } },
  badge(a.severity),
  h("div", {}, h("h3", {}, button), h("p", {}, cut(a.message, 240)),
    places.length ? h("p", { class: "muted" }, places.map((p, i) => [i ? " · " : "", h("span", { class: "mono" }, p)])) : "",
    a.hint ? h("p", {}, h("span", { class: "muted" }, "Fix: "), cut(a.hint, 240)) : ""),
  h("div", { class: "when small" }, h("div", {}, span(a.step, a.last_step)), h("div", { class: "muted" }, a.count > 1 ? `seen ${number(a.count)}×` : "seen once"),
    d.fits > 1 ? h("div", { class: "muted" }, `fit ${a.fit} of ${d.fits}`) : "", a.cleared ? h("div", { class: "pass" }, "gone since") : ""));
  item.append(head);
  if (open) item.append(alertDetails(a, d, `${id}-details`));
  return item;
}

function alertDetails(a, d, id) {
  const page = h("div", { class: "page" }, h("p", { class: "muted" }, "…"));
  if (!pages.has(a.code)) pages.set(a.code, get("page", { code: a.code }).then(JSON.parse));
  pages.get(a.code).then(
    (found) => page.replaceChildren(...prose(found.page)),
    (error) => { pages.delete(a.code); page.replaceChildren(h("p", { class: "muted" }, `No page: ${error.message}`)); });
  const long = a.evidence.filter(([, v]) => typeof v === "string" && v.includes("\n"));
  const facts = [...a.evidence.filter((e) => !long.includes(e)), ["epoch", a.epoch], ["first step", a.step], ["last step", a.last_step], ["count", a.count]];
  const copied = h("span", { role: "status", class: "small muted" });
  const line = h("code", {}, cut(a.silence, 400));
  return h("div", { class: "details", id },
    h("div", {},
      h("h4", {}, "Evidence"), h("dl", { class: "facts" }, facts.map(([k, v]) => [h("dt", {}, cut(k, 60)), h("dd", { class: "mono" }, cut(number(v), 600))])),
      long.map(([k, v]) => [h("h4", {}, k), h("pre", { tabindex: 0 }, v)]),
      a.subjects.length ? [h("h4", {}, `Where (${a.subjects_in_all.toLocaleString("en")})`), h("ul", { class: a.subjects.length > 8 ? "scroll" : "" }, a.subjects.map((s) => h("li", {}, subject(s, d))),
        a.subjects_in_all > a.subjects.length ? h("li", { class: "muted" }, `and ${(a.subjects_in_all - a.subjects.length).toLocaleString("en")} more in watchdog.jsonl`) : "")] : "",
      h("h4", {}, "Silence exactly this"),
      h("div", { class: "silence" }, line, h("button", { onclick: () => copy(a.silence, line, copied) }, "Copy")), copied),
    h("div", {}, h("h4", {}, `About ${cut(a.code, 12)} ${cut(a.name, 60)}`), page));
}

/** A subject; where the run has layer pictures, a button that shows it there. */
function subject(name, d) {
  if (!row()?.layers || name.length > 300 || !name.includes(".")) return h("code", {}, cut(name, 600));
  return h("button", { class: "plain", title: "Show in Layers", onclick: () => { openTab("layers"); panels.layers.find(name); } }, h("code", {}, name));
}

async function copy(text, line, said) {
  try {
    await navigator.clipboard.writeText(text);
    said.textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(line);
    said.textContent = "Selected; copy it with the keyboard.";
  }
}

function alertKeys(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.matches("h3 button")) return;
  const buttons = [...event.currentTarget.querySelectorAll("h3 button")];
  buttons[buttons.indexOf(event.target) + step]?.focus();
  event.preventDefault();
}

// ---- layers

const mix = (a, b, t) => a.map((v, i) => Math.round(v + (b[i] - v) * t));
const along = (stops, t) => {
  const at = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2);
  return mix(stops[i], stops[i + 1], at - i);
};
const isDark = () => document.documentElement.classList.contains("dark");
const INFINITE = [130, 60, 220], UNMEASURED = { light: [214, 219, 224], dark: [92, 97, 104] };

/** Colours from harmless to ill; lightness alone tells them apart, in both themes. */
function stops(worst) {
  const ill = isDark() ? [[60, 60, 60], [176, 92, 32], [255, 190, 110], [255, 246, 214]] : [[246, 248, 250], [247, 190, 122], [204, 86, 20], [74, 14, 10]];
  const cold = isDark() ? [[60, 60, 60], [48, 104, 176], [150, 200, 255]] : [[246, 248, 250], [120, 170, 225], [16, 58, 122]];
  if (worst === "far") return [...cold.slice(1).reverse(), ...(isDark() ? [ill[0], ill[1], ill[2]] : [ill[0], ill[2], ill[3]])];
  return worst === "low" ? ill.reverse() : ill;
}

function layersPanel() {
  let which = "", cursor = null, rows = [], of = null;
  const quantities = h("div", { class: "bar", role: "group", "aria-label": "Quantity" });
  const words = h("input", { id: "layer-words", type: "search", placeholder: "layer name", oninput: () => { cursor = null; draw(true); } });
  const order = h("select", { id: "layer-order", onchange: () => { cursor = null; draw(true); } }, h("option", {}, "worst first"), h("option", {}, "model order"));
  const legend = h("span", { class: "small" });
  const about = h("p", { class: "muted about" });
  const canvas = h("canvas", { tabindex: 0, role: "img" });
  const spacer = h("div");
  const box = h("div", { class: "heat", onscroll: () => draw(false) }, canvas, spacer);
  const reading = h("p", { class: "reading mono wrap", "aria-live": "polite" });
  const table = h("tbody");
  const worst = h("details", {}, h("summary", {}, "The worst ten as a table"), h("table", {}, h("thead", {}, h("tr", {}, ["Layer", "Worst value", "Step"].map((t) => h("th", { scope: "col" }, t)))), table));
  const none = h("p", {}, "This run has no layer records.");
  const body = h("div", {}, quantities, about, h("div", { class: "bar" }, h("label", {}, "Order", order), h("label", { class: "grow" }, "Filter", words), legend), box, reading, worst);
  const root = h("section", {}, none, body);
  canvas.addEventListener("pointermove", (e) => point(e));
  canvas.addEventListener("pointerdown", (e) => point(e));
  canvas.addEventListener("keydown", keys);
  addEventListener("resize", () => root.hidden || draw(true));

  const current = () => state.pictures?.find((p) => p.quantity === which);
  const value = (p, i, j) => {
    const cell = p.cells[i * p.steps.length + j];
    return cell > p.levels ? (cell === p.levels + 1 ? Infinity : NaN) : p.low + ((p.high - p.low) * cell) / p.levels;
  };
  const shownAs = (p, v) => (v === Infinity ? "infinite" : Number.isNaN(v) ? "not measured" : p.unit === "share" ? `${Number((v * 100).toPrecision(3))} %` : p.unit === "log2" ? `2^${v.toFixed(1)}` : p.unit === "bits" ? `${v.toFixed(1)} bits` : number(v));
  const layout = (p) => {
    const width = Math.max(280, box.clientWidth || root.clientWidth);
    const label = Math.min(300, Math.round(width * 0.34));
    return { width, label, cell: Math.min(CELL, (width - label - 6) / p.steps.length) };
  };

  function update() {
    const some = state.pictures?.length > 0;
    none.hidden = some;
    body.hidden = !some;
    none.textContent = row()?.layers ? "Reading the layers…" : "This run has no layer records.";
    if (!some) return;
    if (of !== state.detail.run) { of = state.detail.run; cursor = null; box.scrollTop = 0; }
    if (!current()) which = state.pictures[0].quantity;
    quantities.replaceChildren(...state.pictures.map((p) => h("button", { id: `quantity-${p.quantity}`, "aria-pressed": String(p.quantity === which), onclick: () => { which = p.quantity; cursor = null; update(); } }, p.title)));
    const p = current();
    about.textContent = `${p.about} ${counted(p.names.length, "layer")}, ${counted(p.steps.length * p.merged, "step").replace(/^/, p.merged > 1 ? "about " : "")}${p.merged > 1 ? `, the worst of ${p.merged} per column` : ""}.`.trim();
    showLegend(p);
    table.replaceChildren(...p.order.slice(0, 10).map((i) => {
      const values = p.steps.map((_, j) => value(p, i, j));
      const middle = (p.scale[0] + p.scale[1]) / 2;
      const ill = (v) => (Number.isNaN(v) ? -Infinity : p.worst === "low" ? -v : p.worst === "far" ? Math.abs(v - middle) : v);
      const at = values.reduce((best, v, j) => (ill(v) > ill(values[best]) ? j : best), 0);
      return h("tr", {}, h("td", {}, h("code", {}, cut(p.names[i], 300))), h("td", {}, shownAs(p, values[at])), h("td", {}, number(p.steps[at])));
    }));
    canvas.setAttribute("aria-label", `${p.title} of ${counted(p.names.length, "layer")} over ${counted(p.steps.length, "step")}, arrow keys read single cells; the worst ten follow as a table`);
    draw(true);
  }

  function showLegend(p) {
    const ramp = h("span", { class: "ramp" }), infinite = h("span", { class: "swatch" }), unmeasured = h("span", { class: "swatch" });
    ramp.style.background = `linear-gradient(90deg,${stops(p.worst).map((c) => `rgb(${c})`).join(",")})`;
    infinite.style.background = `rgb(${INFINITE})`;
    unmeasured.style.background = `rgb(${UNMEASURED[isDark() ? "dark" : "light"]})`;
    legend.replaceChildren(`${shownAs(p, p.scale[0])} `, ramp, ` ${shownAs(p, p.scale[1])}   `, infinite, " infinite  ", unmeasured, " not measured");
  }

  function draw(fresh) {
    const p = current();
    if (!p || root.hidden) return;
    if (fresh) {
      const text = words.value.trim().toLowerCase();
      rows = (order.selectedIndex ? p.names.map((_, i) => i) : p.order).filter((i) => !text || p.names[i].toLowerCase().includes(text));
      if (!rows.length) reading.textContent = "No layer has this in its name.";
      else if (!cursor) reading.textContent = "Point at a cell, or use the arrow keys, to read it.";
    }
    const { width, label, cell } = layout(p), ratio = devicePixelRatio || 1;
    const whole = AXIS + rows.length * ROW, height = Math.min(whole, 458);
    if (fresh) {
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
      spacer.style.height = `${whole - height}px`;
    }
    const c = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const fg = style.getPropertyValue("--fg"), bg = style.getPropertyValue("--bg"), muted = style.getPropertyValue("--muted");
    const colours = stops(p.worst), blank = UNMEASURED[isDark() ? "dark" : "light"];
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = bg; c.fillRect(0, 0, width, height);
    c.font = "11px ui-monospace, Menlo, Consolas, monospace"; c.textBaseline = "middle";
    const first = Math.floor(box.scrollTop / ROW), last = Math.min(rows.length, Math.ceil((box.scrollTop + height) / ROW));
    for (let r = first; r < last; r++) {
      const y = AXIS + r * ROW - box.scrollTop;
      for (let j = 0; j < p.steps.length; j++) {
        const v = value(p, rows[r], j);
        const colour = Number.isNaN(v) ? blank : v === Infinity ? INFINITE : along(colours, (v - p.scale[0]) / (p.scale[1] - p.scale[0] || 1));
        c.fillStyle = `rgb(${colour})`;
        c.fillRect(label + j * cell, y, Math.ceil(cell * ratio) / ratio, ROW - 1);
      }
      c.fillStyle = fg;
      c.fillText(shortened(c, p.names[rows[r]], label - 12), 4, y + ROW / 2);
    }
    c.fillStyle = bg; c.fillRect(0, 0, width, AXIS);
    c.fillStyle = muted;
    c.fillText("step", Math.max(4, label - 40), AXIS / 2);
    let free = 0;
    p.steps.forEach((step, j) => {
      const text = number(step), x = label + j * cell, wide = c.measureText(text).width;
      if (x >= free && x + wide <= width) { c.fillText(text, x, AXIS / 2); free = x + wide + 18; }
    });
    if (cursor && rows[cursor[0]] !== undefined) {
      c.strokeStyle = fg; c.lineWidth = 2;
      c.strokeRect(label + cursor[1] * cell, AXIS + cursor[0] * ROW - box.scrollTop, Math.max(cell, 3), ROW - 1);
    }
  }

  function shortened(c, name, room) {
    if (name.length > 400) name = name.slice(0, 200) + name.slice(-200);
    if (c.measureText(name).width <= room) return name;
    const fits = Math.max(4, Math.floor(room / c.measureText("0").width) - 1);
    return "…" + name.slice(-fits);
  }

  function read() {
    const p = current(), [r, j] = cursor;
    reading.textContent = `${cut(p.names[rows[r]], 300)}, step ${number(p.steps[j])}: ${shownAs(p, value(p, rows[r], j))}`;
    draw(false);
  }

  function point(event) {
    const p = current(), { label, cell } = layout(p), at = canvas.getBoundingClientRect();
    const r = Math.floor((event.clientY - at.top - AXIS + box.scrollTop) / ROW), j = Math.floor((event.clientX - at.left - label) / cell);
    if (event.clientY - at.top < AXIS || r >= rows.length || j >= p.steps.length || (cursor && cursor[0] === r && cursor[1] === Math.max(j, 0))) return;
    cursor = [r, Math.max(j, 0)];
    read();
  }

  function keys(event) {
    const p = current();
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-20, 0], PageDown: [20, 0], Home: [-1e9, 0], End: [1e9, 0] }[event.key];
    if (!p || !move || !rows.length) return;
    const [r, j] = cursor ?? [0, move[1] ? -1 : 0];
    cursor = [Math.min(Math.max(r + (cursor ? move[0] : 0), 0), rows.length - 1), Math.min(Math.max(j + move[1], 0), p.steps.length - 1)];
    const y = cursor[0] * ROW, room = canvas.clientHeight - AXIS - ROW;
    box.scrollTop = Math.min(Math.max(box.scrollTop, y - room), y);
    read();
    event.preventDefault();
  }

  return { root, update, find(name) { words.value = name; cursor = null; update(); words.focus(); } };
}

// ---- checks

function checksPanel() {
  const root = h("section", { class: "checks" });
  function update() {
    const d = state.detail;
    const skipped = Object.keys(d.skipped);
    const groups = Map.groupBy ? Map.groupBy(skipped, (c) => d.skipped[c]) : skipped.reduce((m, c) => m.set(d.skipped[c], [...(m.get(d.skipped[c]) ?? []), c]), new Map());
    const section = (title, content) => (content.length ? [h("h2", {}, title), content] : []);
    const lines = (rows) => h("ul", {}, rows.map((cells) => h("li", {}, cells)));
    root.replaceChildren(...[
      h("p", {}, d.over ? `${counted(d.judged.length + skipped.length, "check")}: ${d.judged.length} judged, ${skipped.length} skipped, ${d.ignored.length} silenced on purpose.` : "This list is written when the fit ends."),
      section("Broke, so the verdict is incomplete", Object.entries(d.broken).map(([what, text]) => h("details", {}, h("summary", {}, cut(what, 200)), h("pre", { tabindex: 0 }, text)))),
      section("Silenced on purpose", d.ignored.length ? [lines(d.ignored.map((a) => [badge(a.severity), " ", h("code", {}, cut(a.entry, 200)), a.reason ? ` (${cut(a.reason, 300)})` : " (no reason given)", `: ${cut(a.message, 300)}`]))] : []),
      section("Entries that silenced nothing", d.unused_ignores.length ? [lines(d.unused_ignores.map((e) => h("code", {}, cut(e, 200))))] : []),
      section("Symptoms that a root cause explains", d.explained.length ? [lines(d.explained.map((a) => [badge(a.severity), ` ${a.code} ${cut(a.name, 60)}: ${cut(a.message, 300)}`]))] : []),
      section("Skipped", groups.size ? [h("dl", { class: "facts" }, [...groups].map(([reason, codes]) => [h("dt", {}, cut(reason, 200)), h("dd", { class: "mono" }, codes.join(", "))]))] : []),
      section("Judged", d.judged.length ? [h("p", { class: "mono" }, d.judged.join(", "))] : []),
    ].flat(3));
  }
  return { root, update };
}

// ---- compare

function comparePanel() {
  const choices = h("div", { class: "bar", role: "group", "aria-label": "Runs to compare" });
  const different = h("input", { type: "checkbox", id: "different", onchange: () => update() });
  const table = h("table");
  const root = h("section", {}, choices, h("div", { class: "bar" }, h("label", {}, different, "only what differs")), h("div", { class: "sides", tabindex: 0, role: "region", "aria-label": "Comparison" }, table));

  function update() {
    const offered = state.runs.slice(0, 60);
    state.compared ??= new Set(offered.slice(0, 6).map((r) => r.run));
    choices.replaceChildren(...offered.map((r) => h("button", { id: idOf("compare", r.run), class: "toggle wrap", "aria-pressed": String(state.compared.has(r.run)), onclick: () => {
      state.compared.has(r.run) ? state.compared.delete(r.run) : state.compared.add(r.run);
      keepingFocus(update);
    } }, icon(r.verdict), cut(runName(r.run), 60))));
    const runs = offered.filter((r) => state.compared.has(r.run));
    const codes = [...new Set(runs.flatMap((r) => Object.keys(r.codes)))];
    const worst = (c) => Math.min(...runs.filter((r) => r.codes[c]).map((r) => SEVERITIES.indexOf(r.codes[c].severity)));
    codes.sort((a, b) => worst(a) - worst(b) || compareNames(a, b));
    const lines = [
      ["Verdict", (r) => [r.verdict, badge(r.verdict)]],
      ["First loss", (r) => [r.loss ? number(r.loss.seen) : "none"]],
      ["Expected", (r) => [r.loss?.expected ? `${cut(r.loss.name, 24)} = ${number(r.loss.expected)}` : "unknown"]],
      ["Last step", (r) => [number(r.step)]],
      ...VITALS.map((k) => [k[0].toUpperCase() + k.slice(1), (r) => [cut(r.vitals[k] ?? "none", 160)]]),
      ...["torch", "lightning"].map((k) => [k, (r) => [cut(r.versions[k] ?? "unknown", 40)]]),
      ...codes.map((c) => [`${c} ${cut(runs.find((r) => r.codes[c]).codes[c].name, 60)}`, (r) => codeCell(r.codes[c])]),
    ];
    const cells = lines.map(([title, cell]) => [title, runs.map(cell)]).map(([title, found]) => [title, found, new Set(found.map(([text]) => text)).size > 1]);
    table.replaceChildren(
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Run"), runs.map((r) => h("th", { scope: "col" }, breakable(runName(r.run)))))),
      h("tbody", {}, cells.filter(([, , differs]) => differs || !different.checked).map(([title, found, differs]) =>
        h("tr", { class: differs ? "differs" : "" }, h("th", { scope: "row" }, title), found.map(([text, node]) => h("td", {}, node ?? text))))));
  }

  function codeCell(code) {
    if (!code) return ["no", h("span", { class: "muted" }, "no")];
    const text = `from step ${number(code.step)}, ${counted(code.places, "place")}, seen ${number(code.count)}×`;
    return [code.severity, [h("span", { class: code.severity }, icon(code.severity), " ", WORDS[code.severity]), h("div", { class: "small muted" }, text)]];
  }
  return { root, update };
}

// ---- theme and start

/** Follows TensorBoard's own switch; the page's own document is the only other one it touches. */
function followTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let outside = null;
  try { if (parent !== window) outside = parent.document.body; } catch { /* another origin */ }
  const apply = () => {
    document.documentElement.classList.toggle("dark", outside ? outside.classList.contains("dark-mode") : system.matches);
    if (state.detail) show();
  };
  apply();
  system.addEventListener("change", apply);
  if (outside) new MutationObserver(apply).observe(outside, { attributes: true, attributeFilter: ["class"] });
}

async function keepAsking() {
  for (;;) {
    await new Promise((done) => setTimeout(done, POLL_MS));
    if (document.visibilityState === "visible" && innerWidth > 0) await poll();
  }
}

export async function render() {
  document.documentElement.lang = "en";
  document.title = "Watchdog";
  document.head.append(h("style", {}, CSS));
  build();
  followTheme();
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && poll());
  await poll();
  keepAsking();
}
