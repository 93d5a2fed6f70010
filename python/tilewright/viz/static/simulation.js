// Launches on a simulated GPU: a row of events for each warp, what each event waits for, and the shared memory.

import { lineOf } from "./source.js";
import { count, find, h } from "./util.js";

const WIDTH = 13;
const HEIGHT = 22;
const NAMES = 128;
/** The events that are drawn before and after the selected one. */
const MOST = 1500;

const LABELS = {
  load: "load", store: "store", atomic: "atomic", copy_to_shared: "copy to shared", copy_to_global: "copy to global", complete: "arrival of a copy", init: "init",
  arrive: "arrive", expect: "expect bytes", blocked: "begins to wait", wait: "wait is over", dot: "dot starts", sync_dot: "dot", commit_copies: "commit copies",
  commit_stores: "commit stores", commit_dots: "commit dots", wait_copies: "wait for copies", wait_stores: "wait for stores", wait_dots: "wait for dots",
  barrier_arrive: "arrive at the barrier", barrier_pass: "pass the barrier",
};
/** The group that an event belongs to: of copies, stores or dots. */
const GROUPS = { copy_to_shared: "copies", copy_to_global: "stores", dot: "dots" };

export const eventLabel = (op) => LABELS[op.name] ?? op.name;

/** A scalar of an event. */
export function fact(launch, event, role) {
  const at = launch.ops[event[0]].values.findIndex((value) => value.role === role);
  const form = at < 0 ? null : event[2 + at];
  return form?.[0] === "uniform" ? Number(form[1]) : null;
}

/**
 * The relations of events: for each the warp, the events that it waits for (`after`), those that wait for it (`before`), and its column,
 * which is right of the columns of all events that it waits for.
 */
export function relate(launch, events) {
  const signals = new Map(), groups = new Map(), blocked = new Map(), columns = new Map(), lastCopy = new Map();
  const list = (map, key) => map.get(key) ?? map.set(key, []).get(key);
  const group = (warp, kind) => groups.get(`${warp}:${kind}`) ?? groups.set(`${warp}:${kind}`, { open: [], committed: [] }).get(`${warp}:${kind}`);
  const relations = [];
  events.forEach((event, index) => {
    const { name } = launch.ops[event[0]];
    const [warp, block, barrier, phase] = ["warp", "block", "barrier", "phase"].map((role) => fact(launch, event, role) ?? 0);
    const isOfBlock = name.startsWith("barrier_");
    const key = `${isOfBlock ? "bar" : "mbarrier"}:${block}:${barrier}:${phase}`;
    let after = [];
    if (GROUPS[name]) group(warp, GROUPS[name]).open.push(index);
    if (name === "copy_to_shared") lastCopy.set(warp, index);
    const [verb, kind] = name.split("_");
    if (verb === "commit") {
      const own = group(warp, kind);
      own.committed.push(own.open);
      own.open = [];
    } else if (name === "wait_copies" || name === "wait_stores" || name === "wait_dots") {
      const own = group(warp, kind);
      const keep = fact(launch, event, "count") ?? 0;
      after = own.committed.splice(0, Math.max(0, own.committed.length - keep)).flat();
    } else if (name === "complete") {
      const copies = group(warp, "copies"), dots = group(warp, "dots");
      if (fact(launch, event, "bytes")) {
        // A copy that arrives at a barrier is in no group.
        const copy = lastCopy.get(warp);
        if (copy != null) after = [copy];
        copies.open = copies.open.filter((open) => open !== copy);
      } else {
        after = dots.open;
        dots.open = [];
      }
    } else if (name === "wait" || name === "barrier_pass") after = [...(signals.get(key) ?? [])];
    if (["complete", "arrive", "expect", "barrier_arrive"].includes(name)) list(signals, key).push(index);
    const found = { warp, after, before: [], column: 0, since: null, until: null };
    if (name === "blocked") blocked.set(`${warp}:${key}`, index);
    if (name === "wait" && blocked.has(`${warp}:${key}`)) {
      found.since = blocked.get(`${warp}:${key}`);
      relations[found.since].until = index;
      blocked.delete(`${warp}:${key}`);
    }
    for (const earlier of after) relations[earlier].before.push(index);
    found.column = Math.max((columns.get(warp) ?? -1) + 1, ...after.map((earlier) => relations[earlier].column + 1));
    columns.set(warp, found.column);
    relations.push(found);
  });
  return relations;
}

/** The buffer or barrier at an offset of shared memory: its entry and slot. */
function allocationAt(code, kind, offset) {
  const contains = (entry) => entry.kind === kind && entry.offset <= offset && offset < entry.offset + entry.slots * entry.slotBytes;
  const entry = code.memory?.find(contains);
  return entry && { entry, slot: Math.floor((offset - entry.offset) / entry.slotBytes) };
}

function nameAt(code, kind, offset) {
  const found = allocationAt(code, kind, offset);
  if (!found) return `${kind} at ${offset}`;
  return found.entry.slots > 1 ? `${found.entry.name}[${found.slot}]` : found.entry.name;
}

/** The state of the barriers of a block after an event: phase, arrivals and bytes by offset. */
export function barriersAt(launch, events, last, rank) {
  const states = new Map();
  for (const event of events.slice(0, last + 1)) {
    const { name } = launch.ops[event[0]];
    if (!["init", "arrive", "complete", "expect"].includes(name) || fact(launch, event, "block") !== rank) continue;
    const [barrier, amount, bytes] = ["barrier", "count", "bytes"].map((role) => fact(launch, event, role));
    if (name === "init") states.set(barrier, { needed: amount, phase: 0, arrived: 0, bytes: 0 });
    const state = states.get(barrier);
    if (!state || name === "init") continue;
    state.arrived += amount;
    state.bytes += name === "complete" ? -bytes : bytes;
    if (fact(launch, event, "completes")) Object.assign(state, { phase: state.phase + 1, arrived: 0, bytes: 0 });
  }
  return states;
}

/** The copies to each slot of a buffer up to an event: how many, and whether one is in flight. */
export function copiesAt(launch, data, relations, last, rank, entry) {
  const slots = Array.from({ length: entry.slots }, () => ({ copies: 0, inFlight: null }));
  data.events.slice(0, last + 1).forEach((event, index) => {
    if (launch.ops[event[0]].name !== "copy_to_shared" || fact(launch, event, "block") !== rank) return;
    const slot = slots[Math.floor((fact(launch, event, "memory") - entry.offset) / entry.slotBytes)];
    if (!slot) return;
    const waits = relations[index].before.flatMap((next) => (launch.ops[data.events[next][0]].name === "complete" ? relations[next].before : [next]));
    slot.copies++;
    slot.inFlight = waits.some((wait) => wait <= last) ? null : index;
  });
  return slots;
}

const bytesText = (bytes) => (!bytes ? "" : bytes > 0 ? `, ${count(bytes)} bytes missing` : `, ${count(-bytes)} bytes too many`);
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** The panels of a simulated launch. */
export class Simulation {
  constructor(ask, pick) {
    this.ask = ask;
    this.pick = pick;
  }

  /** Draws the events of the program by warp. Returns the indices of events, in order. */
  async draw(launch, data, state) {
    this.code = (await this.ask("layouts", { launch: state.launch, target: 90 })) ?? {};
    if (this.data !== data) this.relations = relate(launch, data.events);
    Object.assign(this, { launch, data, state });
    const first = Math.max(0, state.event - MOST), last = Math.min(data.events.length, state.event + MOST);
    const drawn = data.events.slice(first, last).map((_, index) => first + index);
    find("loops").replaceChildren(
      h("span", { class: "note", id: "simulated-note" }, `A row is a warp of ${launch.device}. An event is right of the events for which it waits; ← and → follow the order of the simulator. Values of tiles and times are not recorded.`),
      drawn.length < data.events.length ? h("span", { class: "note" }, `events ${first} to ${last - 1} of ${count(data.events.length)}`) : "",
    );
    find("timeline").replaceChildren(this.svg(drawn));
    const current = find("timeline").querySelector(".current");
    if (current) {
      const box = find("timeline");
      const left = Number(current.getAttribute("x"));
      if (left < box.scrollLeft + NAMES || left > box.scrollLeft + box.clientWidth - 2 * WIDTH) box.scrollLeft = Math.max(0, left - box.clientWidth / 2);
    }
    return data.events.map((_, index) => index);
  }

  partition(warp) {
    const own = warp % (this.launch.warps || 1);
    return this.code.partitions?.find(({ first, warps }) => first <= own && own < first + warps)?.name ?? null;
  }

  warpName(warp) {
    const block = Math.floor(warp / (this.launch.warps || 1));
    const name = `warp ${warp % (this.launch.warps || 1)}`;
    const partition = this.partition(warp);
    return `${block ? `block ${block}, ` : ""}${name}${partition ? ` (${partition})` : ""}`;
  }

  svg(drawn) {
    const { launch, data, state, relations } = this;
    const warps = [...new Set(relations.map(({ warp }) => warp))].sort((a, b) => a - b);
    const start = Math.min(...drawn.map((index) => relations[index].column), 0);
    const end = Math.max(...drawn.map((index) => relations[index].column), 0);
    const x = (index) => NAMES + WIDTH * (relations[index].column - start);
    const y = (warp) => HEIGHT * warps.indexOf(warp);
    const isDrawn = new Set(drawn);
    const svg = element("svg", { class: "warps", width: NAMES + WIDTH * (end - start + 2), height: HEIGHT * warps.length });
    for (const warp of warps) svg.append(element("text", { x: 0, y: y(warp) + 14 }, this.warpName(warp)));
    for (const index of drawn) {
      const { warp, since, until } = relations[index];
      const op = launch.ops[data.events[index][0]];
      if (since != null && isDrawn.has(since)) svg.append(element("line", { class: "waiting", x1: x(since), x2: x(index), y1: y(warp) + 10, y2: y(warp) + 10 }));
      const isStuck = op.name === "blocked" && until == null;
      const classes = ["sim-event", `kind-${op.kind}`, `name-${op.name}`, index === state.event && "current", isStuck && "stuck"];
      const mark = element("rect", { class: classes.filter(Boolean).join(" "), x: x(index), y: y(warp) + 3, width: WIDTH - 2, height: 14, rx: 3, "data-event": index, tabindex: -1 });
      mark.append(element("title", {}, `${index}: ${this.text(index)}`));
      mark.addEventListener("click", () => this.pick(index));
      svg.append(mark);
    }
    const selected = relations[state.event];
    const arrow = (from, to, name) => {
      if (isDrawn.has(from) && isDrawn.has(to)) svg.append(element("line", { class: `arrow ${name}`, "data-from": from, "data-to": to, x1: x(from) + WIDTH / 2, y1: y(relations[from].warp) + 10, x2: x(to) + WIDTH / 2, y2: y(relations[to].warp) + 10 }));
    };
    for (const earlier of selected?.after ?? []) arrow(earlier, state.event, "after");
    for (const later of selected?.before ?? []) arrow(state.event, later, "before");
    return svg;
  }

  /** What an event does, in words. */
  text(index) {
    const { launch, data, code } = this;
    const event = data.events[index], op = launch.ops[event[0]];
    const of = (role) => fact(launch, event, role);
    const parts = [eventLabel(op)];
    if (of("memory") != null) parts.push(`${nameAt(code, "buffer", of("memory"))}, ${count(of("bytes") || 0)} bytes`);
    if (op.name.startsWith("barrier_")) parts.push(`barrier ${of("barrier")}`);
    else if (of("barrier") != null) {
      parts.push(nameAt(code, "mbarrier", of("barrier")));
      if (op.name === "init") parts.push(plural(of("count"), "arrival"));
      else parts.push(of("phase") < 0 ? "the phase before the first" : `phase ${of("phase")}`);
      if (of("bytes")) parts.push(`${count(of("bytes"))} bytes`);
      if (of("completes")) parts.push("completes the phase");
    } else if (op.name === "dot" || op.name === "sync_dot") parts.push(plural(of("count"), "instruction"));
    else if (of("count") != null) parts.push(`${plural(of("count"), "group")} may stay in flight`);
    const place = lineOf(launch, op);
    if (place) parts.push(`line ${place.line}`);
    return parts.join(", ");
  }

  /** The selected event: who waits for whom, and the shared memory after it. */
  describe() {
    const { launch, data, state, relations } = this;
    const index = state.event, own = relations[index];
    if (!own) return [];
    const button = (other) => h("li", {}, h("button", { class: `kind-${launch.ops[data.events[other][0]].kind}`, "data-event": other, onclick: () => this.pick(other) }, `${this.warpName(relations[other].warp)}: ${this.text(other)}`));
    const listed = (title, others, id) => (others.length ? h("div", { id }, h("h3", {}, title), h("ul", { class: "related" }, others.map(button))) : null);
    const { name } = launch.ops[data.events[index][0]];
    return [
      h("p", { id: "event-text" }, h("b", {}, this.warpName(own.warp)), `: ${this.text(index)}`),
      name === "blocked" && own.until == null ? this.stuck(index) : null,
      own.until != null ? listed("The wait ends", [own.until], "event-until") : null,
      listed(name === "wait" || name.startsWith("wait_") || name === "barrier_pass" ? "It waited for" : "It follows", own.after, "event-after"),
      listed("Awaited by", own.before, "event-before"),
      this.memory(),
    ];
  }

  /** A wait that nothing ends: what its phase lacks, and who arrives there. */
  stuck(index) {
    const { launch, data, code, relations } = this;
    const event = data.events[index];
    const [block, barrier, phase] = ["block", "barrier", "phase"].map((role) => fact(launch, event, role));
    const found = barriersAt(launch, data.events, data.events.length, block).get(barrier);
    const entry = allocationAt(code, "mbarrier", barrier)?.entry;
    const signals = (entry?.uses ?? []).filter(({ action }) => action === "arrive" || action === "bytes");
    const others = data.events.map((_, other) => other).filter((other) => other !== index && launch.ops[data.events[other][0]].name === "blocked" && relations[other].until == null);
    return h("div", { class: "bad", id: "stuck" },
      h("p", {}, `This wait never ends. ${nameAt(code, "mbarrier", barrier)} is in phase ${found?.phase ?? "?"}, and the warp waits for phase ${phase}. The phase has ${found?.arrived ?? 0} of ${plural(found?.needed ?? 0, "arrival")}${bytesText(found?.bytes)}.`),
      h("p", {}, signals.length ? `Arrivals come from ${signals.map((use) => this.useText(use)).join(" and ")}.` : "Nothing arrives there."),
      others.length ? h("p", {}, "These warps wait as well:") : null,
      h("ul", { class: "related" }, others.map((other) => h("li", {}, h("button", { "data-event": other, onclick: () => this.pick(other) }, `${this.warpName(relations[other].warp)}: ${this.text(other)}`)))),
    );
  }

  useText({ op, line, partition, amount }) {
    const name = this.code.partitions?.[partition]?.name;
    return `${op}${line ? ` in line ${line}` : ""}${name ? ` (${name})` : ""}${amount ? `: ${amount}` : ""}`;
  }

  memory() {
    const { launch, data, state, relations, code } = this;
    if (!code.memory?.length) return h("p", { class: "note" }, "The kernel has no shared memory of its own.");
    const rank = Math.floor(relations[state.event].warp / (launch.warps || 1));
    const barriers = barriersAt(launch, data.events, state.event, rank);
    const rows = code.memory.map((entry) => {
      const cells = entry.kind === "mbarrier" ? this.barrierCells(entry, barriers) : entry.kind === "buffer" ? this.bufferCells(entry, rank) : [];
      const uses = [...new Set(entry.uses.map((use) => `${use.action}: ${this.useText(use)}`))];
      const size = entry.kind === "mbarrier" ? `${plural(entry.slots, "mbarrier")}` : `${entry.slots > 1 ? `${entry.slots} × ` : ""}${entry.tile ?? entry.kind}${entry.layout ? `, layout ${entry.layout}` : ""}`;
      return h("div", { class: "allocation", "data-name": entry.name, "data-kind": entry.kind },
        h("h3", {}, entry.name || entry.kind, h("small", {}, `${size}${entry.offset == null ? "" : `, at ${entry.offset}`}`)), h("div", { class: "slots" }, cells),
        h("ul", { class: "uses" }, uses.map((text) => h("li", {}, text))));
    });
    return h("div", { id: "shared-memory" }, h("h3", {}, `Shared memory of block ${rank} after this event`), rows);
  }

  barrierCells(entry, states) {
    return Array.from({ length: entry.slots }, (_, slot) => {
      const found = states.get(entry.offset + slot * entry.slotBytes);
      const text = found ? `phase ${found.phase}: ${found.arrived} of ${plural(found.needed, "arrival")}${bytesText(found.bytes)}` : "not initialized";
      return h("span", { class: found ? "slot" : "slot off", "data-slot": slot }, text);
    });
  }

  bufferCells(entry, rank) {
    return copiesAt(this.launch, this.data, this.relations, this.state.event, rank, entry).map(({ copies, inFlight }, slot) => {
      const text = inFlight != null ? "copy in flight" : copies ? `${copies === 1 ? "1 copy" : `${copies} copies`} arrived` : "no copy";
      return h("span", { class: inFlight != null ? "slot flying" : copies ? "slot" : "slot off", "data-slot": slot, title: inFlight != null ? this.text(inFlight) : text }, entry.slots > 1 ? `${slot}: ${text}` : text);
    });
  }
}

function element(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
