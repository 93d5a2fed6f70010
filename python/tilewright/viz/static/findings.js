// The findings of a launch, by the sanitizer or from the error that ended it: a list, the text of one, and its marks.

import { coordinates } from "./grid.js";
import { shownPlaces } from "./source.js";
import { count, find, h } from "./util.js";

/** The findings of a launch; the diagnostic of one that has failed is the first of them. */
export function findingsOf(launch) {
  const found = launch.findings.map((finding) => ({ ...finding }));
  if (launch.failure) {
    const [message] = launch.failure.split("\n");
    const code = /\[(TW\d+)\]/.exec(message)?.[1] || "";
    const [, file, line, column] = /--> (.*):(\d+):(\d+)/.exec(launch.failure) || [];
    const number = launch.files.findIndex(({ name }) => name === file);
    const stopped = launch.programs.filter(([, flags]) => flags & 4).map(([program]) => program);
    found.unshift({
      check: code === "TW0201" ? "bounds" : "stopped", code, message: message.replace(/^error(\[\w+\])?: /, ""), text: launch.failure,
      place: number >= 0 ? [number, Number(line), Number(column)] : null, other: null, lane: [], count: 1, ended: true,
      occurrences: stopped.slice(0, 1).map((program) => [program, -1, -1, -1]),
    });
  }
  return found;
}

/** The programs of a finding: those that show it, and those of first accesses of races. */
export function programsOf(finding) {
  return new Set(finding.occurrences.flatMap(([program, , , other]) => (other >= 0 ? [program, other] : [program])));
}

/** The findings at each element of a tensor. */
export function placesIn(findings, tensor) {
  const places = new Map();
  findings.forEach(({ occurrences }, number) => {
    for (const [, at, place] of occurrences) {
      if (at === tensor && place >= 0) places.set(place, (places.get(place) || new Set()).add(number));
    }
  });
  return places;
}

/** The findings at each line: `file:line`, with the first accesses of races. */
export function linesOf(findings) {
  const lines = new Map();
  findings.forEach(({ place, other }, number) => {
    for (const at of [place, other]) {
      if (at && at[0] >= 0) lines.set(`${at[0]}:${at[1]}`, (lines.get(`${at[0]}:${at[1]}`) || new Set()).add(number));
    }
  });
  return lines;
}

/** The index of the event at a position of the source; in a loop, of the one that accesses the element. */
export async function eventAt(launch, events, place, element, touched) {
  if (!place) return -1;
  const isAt = ([number]) => launch.ops[number].kind !== "loop" && shownPlaces(launch, launch.ops[number]).some(([file, line, column]) => file === place[0] && line === place[1] && column === place[2]);
  const found = events.map((event, index) => [event, index]).filter(([event]) => isAt(event));
  // Of the ops of one expression, the access is chosen.
  const accesses = found.filter(([event]) => launch.ops[event[0]].isAccess);
  const candidates = (accesses.length ? accesses : found).map(([, index]) => index);
  if (element && candidates.length > 1) {
    for (const index of candidates.slice(0, 64)) {
      const lanes = await touched(index);
      if (lanes && lanes.places.some((at, lane) => at === element[1] && lanes.tensors[lane] === element[0] && lanes.mask[lane])) return index;
    }
  }
  return candidates[0] ?? -1;
}

const NAMES = { bounds: "out of bounds", race: "race", init: "unwritten", alignment: "misaligned", overflow: "overflow", nan: "NaN", stopped: "stopped" };

/** Shows the findings, and the text of the selected one. `pick` takes the finding, the occurrence, and whether the first access is meant. */
export function drawFindings(launch, findings, selected, occurrence, pick) {
  const isShown = selected != null && findings[selected] != null;
  find("findings").hidden = !isShown;
  if (!isShown) return;
  find("finding-list").replaceChildren(
    ...findings.map(({ check, message, place, count: times }, number) =>
      h("button", { class: "finding-item", "aria-pressed": String(number === selected), "data-finding": number, onclick: () => pick(number) },
        h("span", { class: "badge" }, NAMES[check] || check), ` ${message}`,
        h("small", {}, `${place ? ` line ${place[1]}` : ""}${times > 1 ? ` · ${count(times)}×` : ""}`))),
  );
  const finding = findings[selected];
  const at = finding.occurrences[occurrence];
  const name = (program) => `program (${coordinates(launch.grid, program).join(", ")})`;
  find("finding-title").textContent = finding.code;
  const programs = [];
  if (at) {
    const isRace = at[3] >= 0 || finding.other;
    programs.push(h("button", { class: "of-program", "data-program": at[0], onclick: () => pick(selected, occurrence) }, `${name(at[0])}${isRace ? `, line ${finding.place?.[1] ?? "?"}` : ""}`));
    if (at[3] >= 0) programs.push(" races with ", h("button", { class: "of-program", "data-program": at[3], onclick: () => pick(selected, occurrence, true) }, `${name(at[3])}, line ${finding.other?.[1] ?? "?"}`));
  }
  find("finding-programs").replaceChildren(...programs);
  const most = finding.occurrences.length;
  find("finding-turn").replaceChildren(
    ...(most > 1 ? [h("label", { class: "note" }, h("input", { type: "range", min: 0, max: most - 1, value: occurrence, "aria-label": "occurrence", oninput: (event) => pick(selected, Number(event.target.value)) }), ` ${occurrence + 1} of ${count(most)}`)] : []),
  );
  find("finding-text").textContent = finding.text;
}
