// The source of the kernel: how often each line was executed, how long it took, and which one is selected.

import { count, duration, find, h } from "./util.js";

const TOKENS = /(#.*$)|("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|\b(def|return|for|while|if|elif|else|in|not|and|or|is|None|True|False|range|lambda|import|from|as|assert|pass|with)\b|\b(\d[\w.]*)\b/gm;

/** A highlighted line. */
function colored(text) {
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(TOKENS)) {
    parts.push(text.slice(last, match.index));
    const kind = match[1] ? "c" : match[2] ? "s" : match[3] ? "k" : "n";
    parts.push(h("span", { class: `tok-${kind}` }, match[0]));
    last = match.index + match[0].length;
  }
  parts.push(text.slice(last));
  return parts;
}

/** Files of the library are not shown: an op in one counts at the line that calls it. */
export const isOwn = (file) => !file.name.startsWith("tilewright/lib/");

/** The positions of an op that the page shows, the innermost one first. */
export function shownPlaces(launch, op) {
  return op.places.filter(([file]) => launch.files[file] && isOwn(launch.files[file]));
}

export function lineOf(launch, op) {
  const [place] = shownPlaces(launch, op);
  return place ? { file: place[0], line: place[1], column: place[2], endLine: place[3], endColumn: place[4] } : null;
}

export function textOf(launch, op) {
  const place = lineOf(launch, op);
  if (!place) return "";
  const file = launch.files[place.file];
  return (file.text.split("\n")[place.line - file.firstLine] || "").trim();
}

/** The totals of the ops of each line. */
function totals(launch) {
  const lines = new Map();
  launch.ops.forEach((op, number) => {
    const seen = new Set();
    for (const [file, line] of shownPlaces(launch, op)) {
      const key = `${file}:${line}`;
      if (seen.has(key)) continue;
      seen.add(key);
      const total = lines.get(key) || { events: 0, nanoseconds: 0, out: 0, ops: [] };
      if (op.kind !== "loop") total.events = Math.max(total.events, op.events);
      total.nanoseconds += op.nanoseconds;
      total.out += op.outOfBounds;
      total.ops.push(number);
      lines.set(key, total);
    }
  });
  return lines;
}

/** `marks`: by `file:line` the numbers of findings there, which a click passes to `pickFinding`. */
export function drawSource(launch, pick, marks, findings, pickFinding) {
  const lines = totals(launch);
  const most = Math.max(1, ...[...lines.values()].map((total) => total.nanoseconds));
  const box = find("source");
  box.replaceChildren();
  const used = new Set(launch.ops.flatMap((op) => shownPlaces(launch, op).map(([file]) => file)));
  launch.files.forEach((file, number) => {
    if (!isOwn(file) || (used.size && !used.has(number))) return;
    const rows = file.text.replace(/\n$/, "").split("\n").map((text, index) => {
      const line = file.firstLine + index;
      const total = lines.get(`${number}:${line}`);
      const found = [...(marks.get(`${number}:${line}`) || [])];
      const classes = [total && "has-ops", ((total && total.out) || found.length) && "bad-line"].filter(Boolean).join(" ");
      return h(
        "div",
        { class: classes, "data-line": line, "data-file": number, onclick: () => total && pick(total.ops) },
        h("span", { class: "number" }, found.length ? h("button", { class: "mark-bad", "data-findings": found.join(), title: found.map((one) => findings[one].message).join("\n"), "aria-label": `findings in line ${line}`, onclick: (event) => { event.stopPropagation(); pickFinding(found[0]); } }, "●") : null, String(line)),
        h("span", { class: "count", title: "how often, in all programs" }, total && total.events ? `${count(total.events)}×` : ""),
        h("span", { class: "time" }, total && total.nanoseconds ? [h("i", { style: `transform: scaleX(${total.nanoseconds / most})` }), duration(total.nanoseconds)] : ""),
        h("span", { class: "text" }, colored(text)),
      );
    });
    const head = h("div", { class: "head" }, ...["", "count", "time", ""].map((text) => h("span", {}, text)));
    box.append(h("div", { class: "file", title: file.name }, file.name.split("/").pop()), h("div", { class: "code" }, head, rows));
  });
  const timed = launch.programs.filter(([, flags]) => flags & 1).length;
  find("source-note").textContent = timed < launch.programs.length ? `times are those of ${count(timed)} of ${count(launch.programs.length)} programs, op by op` : "times are op by op";
}

/** Marks the line of an op. */
export function markLine(launch, op) {
  for (const row of document.querySelectorAll(".code .current")) row.classList.remove("current");
  if (!op) return;
  for (const [file, line] of shownPlaces(launch, op)) {
    const row = document.querySelector(`.code [data-file="${file}"][data-line="${line}"]`);
    if (row) {
      row.classList.add("current");
      const box = find("source");
      const [top, bottom] = [row.firstChild.offsetTop - box.offsetTop, row.firstChild.offsetTop - box.offsetTop + 22];
      if (top < box.scrollTop + 40 || bottom > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight / 2);
    }
  }
}
