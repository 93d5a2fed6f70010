// The ops of a program, one after the other; of a loop those of one iteration, chosen by a slider.

import { lineOf } from "./source.js";
import { duration, find, h } from "./util.js";

const MARGIN = 12;

/** Returns the loops and iterations of each event. */
export function nest(launch, events) {
  const stack = [];
  return events.map(([number]) => {
    const op = launch.ops[number];
    while (stack.length && stack.at(-1).op !== op.parent && !(op.kind === "loop" && stack.at(-1).op === number)) stack.pop();
    if (op.kind === "loop") {
      if (stack.length && stack.at(-1).op === number) stack.at(-1).iteration++;
      else stack.push({ op: number, iteration: 0 });
    }
    return stack.map(({ op, iteration }) => ({ op, iteration }));
  });
}

/** Returns whether an event is in the chosen iterations. */
export function isVisible(path, loops) {
  return path.every(({ op, iteration }) => (loops[op] || 0) === iteration);
}

/** The loops that have iterations under the chosen ones outside of them: op, how many, and the counter of each. */
export function loopsOf(launch, data, loops) {
  const found = new Map();
  data.events.forEach((event, index) => {
    const path = data.paths[index];
    if (launch.ops[event[0]].kind !== "loop" || !isVisible(path.slice(0, -1), loops)) return;
    const last = path.at(-1);
    const loop = found.get(last.op) || { op: last.op, counters: [], depth: path.length };
    loop.counters[last.iteration] = event[2] ? event[2][1] : last.iteration;
    found.set(last.op, loop);
  });
  return [...found.values()];
}

const LABELS = { load: "load", store: "store", dot: "dot", reduce: "reduce", scan: "scan" };

export function label(op) {
  return op.name === op.kind ? LABELS[op.kind] || op.name : op.name;
}

/** Returns whether an op computes offsets and masks: its results are recorded as formulas. */
function isIndexing(launch, event) {
  return launch.ops[event[0]].kind === "value" && event.slice(2).every((form) => ["uniform", "affine", "box"].includes(form[0]));
}

export function drawTimeline(launch, data, state, pick, turn, showAll) {
  const loops = loopsOf(launch, data, state.loops);
  const indexing = data.events.some((event) => isIndexing(launch, event));
  find("loops").replaceChildren(
    ...loops.map((loop) => {
      const place = lineOf(launch, launch.ops[loop.op]);
      const at = Math.min(state.loops[loop.op] || 0, loop.counters.length - 1);
      return h(
        "label",
        { class: "loop", "data-op": loop.op },
        `loop in line ${place ? place.line : "?"}`,
        h("input", { type: "range", min: 0, max: loop.counters.length - 1, value: at, "aria-label": `iteration of the loop in line ${place ? place.line : "?"}`,
          oninput: (event) => turn(loop.op, Number(event.target.value)) }),
        h("code", {}, `${loop.counters[at]}`),
        `(${at + 1} of ${loop.counters.length})`,
      );
    }),
    indexing ? h("label", { title: "Ops that compute places and masks (i)" }, h("input", { type: "checkbox", id: "indexing", checked: state.all, onchange: (event) => showAll(event.target.checked) }), "index arithmetic") : "",
  );
  const shown = data.events.map((event, index) => [event, index]).filter(([event, index]) => launch.ops[event[0]].kind !== "loop" && isVisible(data.paths[index], state.loops) && (state.all || index === state.event || !isIndexing(launch, event)));
  const most = Math.max(1, ...shown.map(([event]) => event[1]));
  const box = find("timeline");
  const last = data.events.length - 1;
  // A very long program is shown around the selected op.
  const here = Math.max(0, shown.findIndex(([, index]) => index === state.event));
  const window = shown.slice(Math.max(0, here - 300), here + 300);
  box.replaceChildren(
    ...window.map(([event, index]) => {
      const op = launch.ops[event[0]];
      const place = lineOf(launch, op);
      const classes = ["event", `kind-${op.kind}`, index === state.event && "current", data.hasStopped && index === last && "stopped"];
      return h(
        "button",
        { class: classes.filter(Boolean).join(" "), "data-event": index, title: `${op.name}${place ? `, line ${place.line}` : ""}, ${duration(event[1])}`, onclick: () => pick(index) },
        h("b", {}, label(op)),
        h("small", {}, `${place ? `line ${place.line}` : "library"}${data.hasValues ? ` · ${duration(event[1])}` : ""}`),
        h("span", { class: "duration", style: `width:${(100 * event[1]) / most}%` }),
      );
    }),
  );
  // Only the ops scroll: in a small window, scrollIntoView would scroll the page too.
  const current = box.querySelector(".current");
  if (current) {
    const left = current.offsetLeft - box.offsetLeft - MARGIN;
    const right = left + current.offsetWidth + 2 * MARGIN;
    box.scrollLeft = Math.min(left, Math.max(box.scrollLeft, right - box.clientWidth));
  }
  return shown.map(([, index]) => index);
}
