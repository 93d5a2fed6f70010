// The page: the selection, and the panes that show it. The address has the selection, so that it can be sent to others.

import { DotView } from "./dot.js";
import { drawFindings, eventAt, findingsOf, linesOf, placesIn, programsOf } from "./findings.js";
import { Layouts } from "./gpu.js";
import { Grid, coordinates } from "./grid.js";
import { isFile, recorded } from "./recorded.js";
import { drawSource, lineOf, markLine, textOf } from "./source.js";
import { Simulation, eventLabel } from "./simulation.js";
import { TensorView } from "./tensor.js";
import { valueCard } from "./tile.js";
import { drawTimeline, label, nest } from "./timeline.js";
import { count, duration, find, h, programColor, rgb, sequential, heat, variable } from "./util.js";

const MODES = [["values", "values"], ["accesses", "accesses"], ["programs", "programs"], ["races", "races"]];
const state = { launch: 0, program: 0, event: null, tensor: null, all: false, mode: "values", after: false, plane: 0, loops: {}, finding: null, occurrence: 0 };
let launches = [];
let launch = null;
let data = null;
let shown = [];
let touched = null;
let overlaps = [];
let findings = [];
let lit = null;
const answers = new Map();

/** The answer of the server or of this file, cached; nothing if it has none. */
function ask(name, numbers = {}) {
  const url = `api/${name}?${new URLSearchParams(numbers)}`;
  if (!answers.has(url)) {
    if (answers.size > 400) answers.clear();
    answers.set(url, isFile ? recorded(name, numbers) : fetch(url).then((response) => (response.ok ? response.json() : null)));
  }
  return answers.get(url);
}

const grid = new Grid((program) => select({ program }));
const dot = new DotView();
const gpu = new Layouts(ask);
const simulation = new Simulation(ask, (event) => select({ event }));
const tensorView = new TensorView({ light: lightLanes, who: showWho });

// ---- selection ----

let turn = 0;

/** Changes the selection, and shows it. */
async function select(change) {
  const mine = ++turn;
  if ("launch" in change && change.launch !== state.launch) Object.assign(state, { program: 0, event: null, tensor: null, loops: {}, plane: 0, finding: null, occurrence: 0 });
  Object.assign(state, change);
  if (!launch || launch.number !== state.launch) {
    const found = await ask("launch", { launch: state.launch });
    if (mine !== turn || !found) return;
    launch = { ...found, number: state.launch };
    overlaps = [];
    findings = findingsOf(launch);
    data = null;
    showLaunch();
    // A launch with findings is opened for them.
    if (findings.length && !("program" in change) && !("finding" in change)) return pickFinding(0);
  }
  if (!data || data.program !== state.program || data.launch !== state.launch) {
    const wanted = { launch: state.launch, program: state.program };
    const previous = data && data.launch === state.launch && !("event" in change) ? data.events[state.event] : null;
    const found = await ask("program", wanted);
    if (mine !== turn) return;
    data = found ? { ...found, launch: state.launch, paths: nest(launch, found.events) } : { program: state.program, launch: state.launch, events: [], paths: [] };
    // The same op of the other program.
    if (previous) {
      const same = data.events.findIndex((event) => event[0] === previous[0]);
      if (same >= 0) state.event = same;
    }
  }
  if (state.event == null || !isShownEvent(state.event)) {
    state.event = data.hasStopped ? data.events.length - 1 : data.events.findIndex((_, index) => isShownEvent(index) && launch.ops[data.events[index][0]].isAccess);
    change = { event: state.event, ...change };
  }
  if (state.event < 0) state.event = data.events.findIndex((_, index) => isShownEvent(index));
  if (!("loops" in change)) for (const { op, iteration } of data.paths[state.event] || []) state.loops[op] = iteration;
  await showSelection(mine, change);
}

const isShownEvent = (index) => data.events[index] && launch.ops[data.events[index][0]].kind !== "loop";

function writeAddress() {
  const parts = { launch: state.launch, program: state.program, event: state.event, tensor: state.tensor, mode: state.mode, after: state.after ? 1 : 0, plane: state.plane, finding: state.finding, occurrence: state.finding == null ? null : state.occurrence };
  const text = new URLSearchParams(Object.entries(parts).filter(([, value]) => value != null)).toString();
  history.replaceState(null, "", `#${text}`);
}

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const change = {};
  for (const key of ["launch", "program", "event", "tensor", "plane", "finding", "occurrence"]) {
    if (/^\d+$/.test(parts.get(key) || "")) change[key] = Number(parts.get(key));
  }
  if (MODES.some(([mode]) => mode === parts.get("mode"))) change.mode = parts.get("mode");
  if (parts.has("after")) change.after = parts.get("after") === "1";
  return change;
}

// ---- launch ----

function showLaunch() {
  const [x, y, z] = launch.grid;
  const constants = launch.constants.map(([name, value]) => `${name}=${value}`);
  const scalars = launch.parameters.filter(({ dtype }) => !dtype.startsWith("*")).map(({ name, value }) => `${name}=${value}`);
  find("facts").title = [...scalars, ...constants].join(", ");
  find("facts").replaceChildren(h("b", { id: "kernel" }, launch.kernel), ` [${x}${y * z > 1 ? `, ${y}` : ""}${z > 1 ? `, ${z}` : ""}]`, ` ${[...scalars, ...constants].join(", ")} · ${launch.device ? `simulated on ${launch.device}` : launch.interpreted ? "interpreted" : "compiled for the CPU"} · ${duration(launch.nanoseconds)}`);
  find("who").hidden = true;
  drawSource(launch, pickOps, linesOf(findings), findings, pickFinding);
  document.body.classList.toggle("simulated", launch.device != null);
  if (launch.device) find("source-note").textContent = "counts are events of all warps and programs";
  showGrid();
  showTabs();
  showChips();
  delete document.body.dataset.checked;
  const asked = launch.number;
  const asking = launch.tensors.map(async (tensor, number) => {
    const found = await ask("overlaps", { launch: asked, tensor: number });
    if (launch.number !== asked) return;
    overlaps[number] = isOrdered() && found?.races ? { ...found, races: [], shared: found.races.length } : found;
    showTabs();
    showChips();
    if (number === state.tensor && data && tensorView.data) await drawTensor();
  });
  Promise.all(asking).then(() => {
    if (launch.number === asked) document.body.dataset.checked = String(asked);
  });
}

function showChips() {
  const out = launch.ops.reduce((sum, op) => sum + op.outOfBounds, 0);
  const races = overlaps.reduce((sum, found) => sum + (found?.races?.length || 0), 0);
  const chips = [];
  const turn = () => pickFinding(state.finding == null ? 0 : (state.finding + 1) % findings.length);
  if (findings.length) chips.push(h("span", { class: "chip bad", id: "chip-findings", title: "The next finding (f)", onclick: turn }, `${count(findings.length)} finding${findings.length === 1 ? "" : "s"}`));
  if (launch.failed) chips.push(h("span", { class: "chip bad", id: "chip-failed" }, "stopped"));
  if (out) chips.push(h("span", { class: "chip bad", id: "chip-out", onclick: () => pickOps([launch.ops.findIndex((op) => op.outOfBounds)]) }, `${count(out)} lane${out === 1 ? "" : "s"} out of bounds`));
  if (races) {
    const first = overlaps.findIndex((found) => found?.races?.length);
    chips.push(h("span", { class: "chip bad", id: "chip-races", onclick: () => select({ tensor: first, mode: "races" }) }, `races for ${count(races)} element${races === 1 ? "" : "s"}`));
  }
  if (launch.partial) chips.push(h("span", { class: "chip", id: "chip-partial", title: "the accesses of this launch have more lanes than are counted" }, "counts are incomplete"));
  if (!chips.length && overlaps.filter(Boolean).length === launch.tensors.length) chips.push(h("span", { class: "chip good", id: "chip-clean", title: launch.checks ? `checked for ${launch.checks}` : "accesses out of bounds, and programs that share elements" }, "no finding"));
  find("chips").replaceChildren(...chips);
}

function showTabs() {
  find("tensors").replaceChildren(
    ...launch.tensors.map((tensor, number) => {
      const races = overlaps[number]?.races?.length;
      return h("button", { class: "tab", role: "tab", "aria-selected": String(number === state.tensor), "data-tensor": number, onclick: () => select({ tensor: number, plane: 0 }) },
        tensor.name, " ", h("small", {}, `${tensor.dtype}[${tensor.shape.join(", ")}]`), races ? h("span", { class: "races", title: `races for ${races} elements` }, " ⚠") : null);
    }),
  );
}

// ---- findings ----

/** Returns whether the sanitizer has looked for races and found none: accesses to shared elements are ordered. */
const isOrdered = () => launch.checks.split(",").includes("race") && !findings.some(({ check }) => check === "race");

const showGrid = () => grid.show(launch, state.program, new Set(findings.flatMap((finding) => [...programsOf(finding)])));

/** Selects the position of a finding: the program, the op and the element; of a race also those of the first access. */
async function pickFinding(number, occurrence = 0, isFirst = false) {
  const finding = findings[number];
  if (!finding) return;
  const [program, tensor, element, other] = finding.occurrences[occurrence] || [state.program, -1, -1, -1];
  const change = { finding: number, occurrence, program: isFirst ? other : program, mode: "values" };
  const found = await ask("program", { launch: launch.number, program: change.program });
  const touches = (event) => ask("touched", { launch: launch.number, program: change.program, event });
  const events = found?.events || [];
  const event = finding.ended ? events.length - 1 : await eventAt(launch, events, isFirst ? finding.other : finding.place, tensor >= 0 ? [tensor, element] : null, touches);
  if (event >= 0) change.event = event;
  if (tensor >= 0) {
    const extents = launch.tensors[tensor].shape;
    Object.assign(change, { tensor, plane: extents.length > 2 ? Math.floor(element / (extents.at(-1) * extents.at(-2))) : 0 });
  }
  await select(change);
}

/** The element of the tile that the selected finding is about, if this op and program are meant. */
function laneOfFinding(op) {
  const finding = findings[state.finding];
  const isHere = finding?.place && finding.lane.length && finding.occurrences[0]?.[0] === state.program;
  const isAt = ([file, line, column]) => file === finding.place[0] && line === finding.place[1] && column === finding.place[2];
  return isHere && op.places.some(isAt) ? finding.lane : null;
}

function closeFindings() {
  if (state.finding != null) select({ finding: null, tensor: state.tensor, event: state.event, after: state.after });
}

// ---- program and op ----

/** Selects the first event of one of these ops in this program. */
function pickOps(ops) {
  const rank = (event) => (launch.ops[event[0]].isAccess ? 2 : ["dot", "reduce", "scan"].includes(launch.ops[event[0]].kind) ? 1 : 0);
  const found = data.events.map((event, index) => [event, index]).filter(([event]) => ops.includes(event[0]) && launch.ops[event[0]].kind !== "loop");
  if (!found.length) return;
  const current = found.findIndex(([, index]) => index === state.event);
  const best = [...found].sort((a, b) => rank(b[0]) - rank(a[0]))[0];
  select({ event: current >= 0 ? found[(current + 1) % found.length][1] : best[1] });
}

async function showSelection(mine, change) {
  const occurrence = findings[state.finding]?.occurrences[state.occurrence];
  grid.draw(state.program, new Set(occurrence ? [occurrence[0], occurrence[3]].filter((program) => program >= 0) : []), state.mode === "programs");
  drawFindings(launch, findings, state.finding, state.occurrence, pickFinding);
  const place = coordinates(launch.grid, state.program);
  find("program-title").textContent = launch.programs.length || launch.grid.every(Boolean) ? `Program (${place.join(", ")})` : "The grid is empty";
  const notes = data.events.length ? [`${count(data.events.length)} events`, ...(launch.device ? [] : [duration(data.nanoseconds || 0)])] : ["not recorded"];
  if (data.hasStopped) notes.push("stopped at its last op");
  if (data.events.length && !data.hasValues) notes.push("only its accesses are recorded: raise triton_viz.config.programs for values");
  if (data.isCutShort) notes.push("cut short: the launch had no room left");
  find("program-note").textContent = notes.join(" · ");
  if (launch.device) {
    const drawn = await simulation.draw(launch, data, state);
    if (mine !== turn) return;
    shown = drawn;
  } else shown = drawTimeline(launch, data, state, (event) => select({ event }), turnLoop, (all) => select({ all, tensor: state.tensor }));
  const event = data.events[state.event];
  const op = event && launch.ops[event[0]];
  markLine(launch, op);
  touched = null;
  if (op && op.isAccess) {
    touched = await ask("touched", { launch: state.launch, program: state.program, event: state.event });
    if (mine !== turn) return;
    if (touched && touched.tensor >= 0 && !("tensor" in change)) {
      if (touched.tensor !== state.tensor) state.plane = 0;
      state.tensor = touched.tensor;
    }
    // The effect of a store is seen after the launch.
    if (!("after" in change) && "event" in change) state.after = op.kind !== "load";
  }
  if (state.tensor == null || state.tensor >= launch.tensors.length) state.tensor = launch.tensors.length ? 0 : null;
  showTabs();
  showBars();
  writeAddress();
  await Promise.all([drawTensor(), showOp(mine, op, event)]);
  document.body.dataset.ready = String(mine);
}

function turnLoop(op, iteration) {
  const loops = { ...state.loops, [op]: iteration };
  const current = data.events[state.event]?.[0];
  const candidates = data.events.map((event, index) => index).filter((index) => isShownEvent(index) && data.paths[index].every((step) => (loops[step.op] || 0) === step.iteration));
  const same = candidates.find((index) => data.events[index][0] === current && data.paths[index].some((step) => step.op === op));
  const inside = candidates.find((index) => data.paths[index].some((step) => step.op === op));
  select({ loops, event: same ?? inside ?? state.event });
}

const AXES = { load: "reads", store: "writes", atomic: "reads and writes at once" };

async function showOp(mine, op, event) {
  const box = find("values");
  if (!op) {
    find("op-title").textContent = "Op";
    find("op-note").textContent = "";
    box.replaceChildren();
    dot.hide();
    return;
  }
  const place = lineOf(launch, op);
  find("op-title").textContent = launch.device ? eventLabel(op) : label(op);
  const notes = [place ? `line ${place.line}` : "in the library"];
  if (touched) {
    const active = touched.mask.filter(Boolean).length;
    notes.push(`${AXES[op.kind]} ${count(active)} of ${count(touched.mask.length)} lanes`);
  }
  if (data.hasValues && !launch.device) notes.push(duration(event[1]));
  find("op-note").textContent = notes.join(" · ");
  find("op-note").title = textOf(launch, op);
  const cards = await Promise.all(
    op.values.filter(({ shape }) => !launch.device || shape.length).map(async ({ role, dtype, shape }, value) => {
      const form = event[2 + value];
      const found = form ? await ask("value", { launch: state.launch, program: state.program, event: state.event, value }) : null;
      const stopped = data.hasStopped && state.event === data.events.length - 1;
      return { role, dtype, shape, form, stopped, elements: found && found.elements };
    }),
  );
  if (mine !== turn) return;
  const hasLanes = (shape) => touched && shape.reduce((product, extent) => product * extent, 1) === touched.mask.length;
  for (const card of cards) {
    if (card.role === "pointer" && touched) {
      const tensor = launch.tensors[touched.tensor];
      card.elements = touched.bytes.map((bytes, lane) => (touched.places[lane] >= 0 && touched.tensors[lane] === touched.tensor ? touched.places[lane] : tensor ? bytes / tensor.size : bytes));
      card.dtype = tensor ? `places in ${tensor.name}` : card.dtype;
      card.form = null;
    }
    if (hasLanes(card.shape) && card.role !== "mask") {
      card.look = (lane) => (!touched.mask[lane] ? "off" : touched.tensors[lane] < 0 ? "out" : "");
      card.point = (lane) => lightPlace(lane == null || touched.tensors[lane] !== state.tensor ? null : touched.places[lane]);
    }
  }
  const lane = laneOfFinding(op);
  for (const card of cards) {
    if (lane && card.shape.length === lane.length) {
      const number = lane.reduce((flat, index, axis) => flat * card.shape[axis] + index, 0);
      const look = card.look || (() => "");
      card.look = (at) => (at === number ? "found" : look(at));
    }
  }
  const withData = cards.filter((card) => card.form || card.elements);
  const about = launch.device ? simulation.describe().filter(Boolean) : [];
  box.replaceChildren(h("code", { class: "note line-text" }, textOf(launch, op)), ...about, ...withData.sort((a, b) => order(a) - order(b)).map(valueCard));
  const by = Object.fromEntries(cards.map((card) => [card.role, card]));
  const isSmall = (card) => card && card.elements && card.shape.length === 2 && card.shape[0] * card.shape[1] <= 128 * 128;
  if (op.kind === "dot" && isSmall(by.a) && isSmall(by.b) && isSmall(by.acc) && by.a.shape[1] === by.b.shape[0]) {
    dot.show({ a: by.a.elements, b: by.b.elements, acc: by.acc.elements, result: by.result?.elements, shapes: { a: by.a.shape, b: by.b.shape } });
  } else dot.hide();
}

const order = (card) => ({ result: 0, operand: 0, mask: 2, pointer: 3, other: 4 })[card.role] ?? 1;

// ---- tensor ----

function segments(box, options, current, pick) {
  box.replaceChildren(...options.map(([value, text]) => h("button", { role: "radio", "aria-checked": String(value === current), "data-value": value, onclick: () => pick(value) }, text)));
}

function showBars() {
  segments(find("modes"), MODES, state.mode, (mode) => select({ mode, tensor: state.tensor }));
  segments(find("phases"), [[false, "before"], [true, "after"]], state.after, (after) => select({ after, tensor: state.tensor }));
  find("phases").hidden = state.mode !== "values";
}

async function drawTensor() {
  const number = state.tensor;
  const tensor = launch.tensors[number];
  if (!tensor) return;
  const mine = turn;
  const elements = tensor.hasElements && state.mode === "values" ? (await ask("elements", { launch: state.launch, tensor: number, after: state.after ? 1 : 0 })) ?? (await ask("elements", { launch: state.launch, tensor: number, after: 0 })) : null;
  const found = state.mode === "programs" ? await ask("programs", { launch: state.launch, tensor: number }) : null;
  if (mine !== turn) return;
  const planes = tensor.shape.slice(0, -2).reduce((product, extent) => product * extent, 1);
  const op = data.events[state.event] && launch.ops[data.events[state.event][0]];
  const pointer = op && op.values.find(({ role }) => role === "pointer");
  tensorView.show({ tensor, number, elements, overlaps: overlaps[number], touched, mode: state.mode, plane: state.plane, lit, marks: placesIn(findings, number), findings, finding: state.finding, kernel: launch.kernel, grid: launch.grid, programs: found?.programs, blockWidth: pointer?.shape.at(-1) });
  find("plane").replaceChildren(...(planes > 1 ? [h("label", { class: "note" }, "plane ", h("input", { type: "range", min: 0, max: planes - 1, value: state.plane, "aria-label": "plane", oninput: (event) => select({ plane: Number(event.target.value), tensor: state.tensor }) }), ` ${state.plane} of ${planes}`)] : []));
  showTensorNote(tensor, elements, found);
  showLegend();
}

function showTensorNote(tensor, elements, found) {
  const notes = [];
  if (tensor.shape.length > 1) {
    const dense = tensor.shape.reduceRight(([strides, size], extent) => [[size, ...strides], size * extent], [[], 1])[0];
    if (dense.join() !== tensor.strides.join()) notes.push(`strides ${tensor.strides.join(", ")}`);
  }
  if (!elements && state.mode === "values") notes.push("values are not kept of tensors this large (triton_viz.config.tensor_bytes)");
  if (found?.tooLarge) notes.push("too many accesses to color them by program");
  const active = tensorView.active.size;
  if (touched && touched.tensor === state.tensor) notes.push(`${count(active)} element${active === 1 ? "" : "s"} by the selected op`);
  const outside = tensorView.ghosts.filter((ghost) => ghost.isActive).length;
  find("tensor-note").replaceChildren(notes.join(" · "), outside ? h("b", { class: "bad", id: "out-note" }, ` ${count(outside)} out of bounds`) : "");
}

function showLegend() {
  const swatch = (style, text) => h("span", {}, h("i", { style }), text);
  const ramp = (stops) => `background: linear-gradient(90deg, ${stops.map(rgb).join(",")})`;
  const parts = [];
  if (tensorView.scale) {
    const { low, high, stops } = tensorView.scale;
    parts.push(h("span", {}, `${Number(low.toPrecision(4))} `, h("i", { class: "ramp", style: ramp(stops) }), `${Number(high.toPrecision(4))}`));
  }
  if (state.mode === "accesses") {
    parts.push(h("span", {}, h("i", { class: "ramp", style: ramp([sequential(0.25), sequential(1)]) }), "read"));
    parts.push(h("span", {}, h("i", { class: "ramp", style: ramp([heat(0.25), heat(1)]) }), `written, by up to ${tensorView.most || 1}`));
  }
  if (state.mode === "programs") parts.push(...programLegend(tensorView.data.programs || []));
  if (state.mode === "races") parts.push(swatch("background:#dc2626", "race"), swatch(`background:${rgb(sequential(0.12))}`, "accessed"));
  if (placesIn(findings, state.tensor).size) parts.push(swatch("border:3px solid #dc2626", "finding"));
  if (touched) {
    parts.push(swatch(`border:2px solid ${variable("--accent")}`, "selected op"));
    const hatch = variable("--hatch");
    if (tensorView.masked.size || tensorView.ghosts.some((ghost) => !ghost.isActive)) parts.push(swatch(`background:repeating-linear-gradient(135deg, ${hatch} 0 1px, transparent 1px 4px);border:1px dashed ${hatch}`, "masked"));
    if (tensorView.ghosts.some((ghost) => ghost.isActive)) parts.push(swatch("background:#dc2626", "out of bounds"));
  }
  find("legend").replaceChildren(...parts);
}

const MOST_IN_LEGEND = 12;

/** The colors of the programs that access the tensor; the grid has those of all. */
function programLegend(programs) {
  const swatch = (background, text) => h("span", { class: "of-programs" }, h("i", { style: `background:${background}` }), text);
  const all = [...new Set(programs.flat())].sort((a, b) => a - b);
  const named = all.slice(0, MOST_IN_LEGEND).map((program) => swatch(rgb(programColor(program)), `(${coordinates(launch.grid, program).join(", ")})`));
  const several = programs.find((found) => found.length > 1);
  if (several) named.push(swatch(`linear-gradient(90deg, ${several.map((program, index) => `${rgb(programColor(program))} ${(100 * index) / several.length}% ${(100 * (index + 1)) / several.length}%`).join(", ")})`, "several programs"));
  if (all.length > MOST_IN_LEGEND) named.push(h("span", {}, `and ${count(all.length - MOST_IN_LEGEND)} more, as in the grid`));
  return named;
}

/** Marks the lanes of the tables that access an element. */
function lightLanes(place) {
  for (const cell of document.querySelectorAll("td.lit")) cell.classList.remove("lit");
  if (place == null || !touched) return;
  touched.places.forEach((at, lane) => {
    if (at === place && touched.tensors[lane] === state.tensor) {
      for (const cell of document.querySelectorAll(`#values td[data-lane="${lane}"]`)) cell.classList.add("lit");
    }
  });
}

/** Marks an element of the tensor. */
function lightPlace(place) {
  if (place === lit) return;
  lit = place;
  drawTensor();
}

async function showWho(place) {
  const found = await ask("who", { launch: state.launch, tensor: state.tensor, place });
  if (!found) return;
  const tensor = launch.tensors[state.tensor];
  const races = overlaps[state.tensor]?.races?.includes(place);
  const close = () => (find("who").hidden = true);
  const items = found.accesses.map(([number, program, lane]) => {
    const op = launch.ops[number];
    const at = lineOf(launch, op);
    return h("li", {}, h("button", { class: `kind-${op.kind}`, onclick: () => goTo(program, number) }, `${label(op)} by program (${coordinates(launch.grid, program).join(", ")}), lane ${lane}${at ? `, line ${at.line}` : ""}`));
  });
  find("who").replaceChildren(
    h("h3", {}, h("button", { onclick: close, "aria-label": "close" }, "×"), `${tensor.name}[${tensorView.index(place).join(", ")}]`),
    ...[...(placesIn(findings, state.tensor).get(place) || [])].map((number) => h("button", { class: "bad found-here", onclick: () => pickFinding(number) }, findings[number].message)),
    races ? h("div", { class: "bad" }, "A race: programs are not ordered, and one of these writes.") : null,
    h("div", { class: "note" }, found.count ? `${found.partial ? "at least " : ""}${count(found.count)} access${found.count === 1 ? "" : "es"}` : "no accesses"),
    h("ul", {}, items),
  );
  find("who").hidden = false;
}

async function goTo(program, op) {
  const found = await ask("program", { launch: state.launch, program });
  const event = found ? found.events.findIndex((event) => event[0] === op) : 0;
  select({ program, event: Math.max(0, event), mode: state.mode });
}

// ---- keys, theme, start ----

function step(by) {
  const at = shown.indexOf(state.event);
  const next = shown[Math.min(Math.max(at + by, 0), shown.length - 1)];
  if (next != null && next !== state.event) select({ event: next });
}

function move(dx, dy) {
  const [x, y] = launch.grid;
  const total = x * y * launch.grid[2];
  const next = state.program + dx + dy * x;
  if (next >= 0 && next < total) select({ program: next });
}

function iterate(by) {
  const path = data.paths[state.event];
  const last = path?.at(-1);
  if (!last) return;
  const slider = document.querySelector(`.loop[data-op="${last.op}"] input`);
  const next = last.iteration + by;
  if (slider && next >= 0 && next <= Number(slider.max)) turnLoop(last.op, next);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // A browser without storage forgets it.
  }
}

function toggleTheme() {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  redraw();
}

function redraw() {
  if (!launch || !data) return;
  select({ tensor: state.tensor, event: state.event, after: state.after });
}

const KEYS = {
  ArrowRight: () => step(1), ArrowLeft: () => step(-1), "[": () => iterate(-1), "]": () => iterate(1),
  v: () => select({ mode: "values", tensor: state.tensor }), a: () => select({ mode: "accesses", tensor: state.tensor }), p: () => select({ mode: "programs", tensor: state.tensor }), r: () => select({ mode: "races", tensor: state.tensor }),
  i: () => select({ all: !state.all, tensor: state.tensor }), b: () => select({ after: !state.after, tensor: state.tensor }), d: toggleTheme, l: () => gpu.open(state.launch), "?": () => find("keys").showModal(), " ": () => dot.play(),
  e: () => tensorView.exportPng(), E: () => tensorView.exportSvg(), f: () => findings.length && pickFinding(state.finding == null ? 0 : (state.finding + 1) % findings.length), F: () => findings.length && pickFinding(((state.finding ?? 0) + findings.length - 1) % findings.length),
  Escape: () => (find("who").hidden ? closeFindings() : (find("who").hidden = true)),
};
const MOVES = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

addEventListener("keydown", (event) => {
  if (!launch || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || find("keys").open || find("layouts").open) return;
  if (event.shiftKey && MOVES[event.key]) move(...MOVES[event.key]);
  else if (KEYS[event.key]) {
    if (event.key === " " && event.target.tagName === "BUTTON") return;
    KEYS[event.key]();
  } else if (/^[1-9]$/.test(event.key) && Number(event.key) <= launch.tensors.length) select({ tensor: Number(event.key) - 1, plane: 0 });
  else return;
  event.preventDefault();
});

addEventListener("hashchange", () => select(readAddress()));
addEventListener("resize", () => redraw());
find("close-findings").addEventListener("click", closeFindings);
find("theme").addEventListener("click", toggleTheme);
find("show-layouts").addEventListener("click", () => gpu.open(state.launch));
find("help").addEventListener("click", () => find("keys").showModal());
find("export-png").addEventListener("click", () => tensorView.exportPng());
find("export-svg").addEventListener("click", () => tensorView.exportSvg());
find("launches").addEventListener("change", (event) => {
  // The page handles the keys again.
  event.target.blur();
  select({ launch: Number(event.target.value) });
});

async function start() {
  let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  try {
    theme = localStorage.getItem("theme") || theme;
  } catch {
    // As above.
  }
  document.documentElement.dataset.theme = theme;
  launches = (await ask("launches")) || [];
  if (!launches.length) {
    document.querySelector("main").replaceChildren(h("div", { class: "empty" }, "Nothing was traced yet: launch a kernel that is decorated with @triton_viz.trace, then load this page again."));
    return;
  }
  find("launches").replaceChildren(...launches.map(({ kernel, grid, failed, found }, number) => h("option", { value: number }, `${number}: ${kernel} [${grid.join(", ")}]${failed ? " ✗" : ""}${found ? ` ● ${found}` : ""}`)));
  const change = { launch: 0, ...readAddress() };
  if (change.launch >= launches.length) change.launch = 0;
  find("launches").value = String(change.launch);
  await select(change);
}

start();
