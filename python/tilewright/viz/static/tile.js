// The values of an op as tables.

import { brief, h, inkOn, rgb, scale } from "./util.js";

const MOST_ROWS = 64;
const MOST_COLUMNS = 64;
const ACROSS = 8;

const ROLES = { result: "result", operand: "value", pointer: "offsets", mask: "mask", other: "other", a: "a", b: "b", acc: "accumulator", counter: "counter" };

/** The form in which a value is recorded: as a formula, or element by element. */
function formText(form, shape) {
  if (!form) return "";
  const [kind, ...rest] = form;
  if (kind === "uniform") return "";
  if (kind === "affine") {
    const names = "ijkl";
    const terms = rest.slice(1).map((stride, axis) => (stride ? `${stride === 1 ? "" : `${stride}·`}${names[axis]}` : null)).filter(Boolean);
    return [rest[0], ...terms].join(" + ").replaceAll("+ -", "− ");
  }
  if (kind === "box") return `true in ${rest.map(([low, high]) => `${low}…${high - 1}`).join(" × ")}`;
  return "";
}

/** Rows of a value: 1-D tiles are wrapped. */
function grid(shape) {
  const total = shape.reduce((product, extent) => product * extent, 1);
  if (shape.length < 2) {
    const columns = Math.min(total, total <= 8 ? total : ACROSS);
    return { rows: Math.ceil(total / columns), columns, isWrapped: true, total };
  }
  const columns = shape.at(-1);
  return { rows: total / Math.max(1, columns), columns, isWrapped: false, total };
}

/** A card for a value. `look` returns the classes of a lane's cell; `point` gets the lane under the mouse. */
export function valueCard({ role, dtype, shape, form, elements, look, point, stopped }) {
  const title = h("h3", {}, ROLES[role] || role, h("small", {}, `${dtype}${shape.length ? `[${shape.join(", ")}]` : ""}`), h("small", {}, formText(form, shape)));
  const card = h("div", { class: "value", "data-role": role }, title);
  if (!elements) {
    card.append(h("div", { class: "note" }, stopped ? "the op has not finished" : "not recorded: the launch had no room left (triton_viz.config.value_bytes)"));
    return card;
  }
  if (form && form[0] === "uniform" && shape.length && role !== "result") {
    card.append(h("div", { class: "scroll" }, h("table", { class: "tile" }, h("tr", {}, h("td", {}, `${brief(elements[0], 12)} everywhere`)))));
    return card;
  }
  const { rows, columns, isWrapped, total } = grid(shape);
  const colors = dtype.startsWith("*") || dtype === "int1" || total < 2 ? null : scale(elements);
  const shownRows = Math.min(rows, MOST_ROWS);
  const shownColumns = Math.min(columns, MOST_COLUMNS);
  const table = h("table", { class: "tile" });
  if (total > 1) {
    table.append(h("tr", {}, h("th", {}), ...Array.from({ length: shownColumns }, (_, column) => h("th", {}, String(column)))));
  }
  for (let row = 0; row < shownRows; row++) {
    const line = h("tr", {}, total > 1 ? h("th", {}, String(isWrapped ? row * columns : row)) : null);
    for (let column = 0; column < shownColumns; column++) {
      const lane = row * columns + column;
      if (lane >= total) break;
      const value = elements[lane];
      const color = colors && colors.color(value);
      const style = color ? `background:${rgb(color)};color:${inkOn(color)}` : null;
      const classes = look ? look(lane) : "";
      line.append(h("td", { "data-lane": lane, class: classes, style: classes ? null : style, title: String(value) }, brief(value, 6)));
    }
    table.append(line);
  }
  if (point) {
    table.addEventListener("mouseover", (event) => {
      const lane = event.target.dataset?.lane;
      point(lane == null ? null : Number(lane));
    });
    table.addEventListener("mouseleave", () => point(null));
  }
  card.append(h("div", { class: "scroll" }, table));
  if (rows > shownRows || columns > shownColumns) {
    card.append(h("div", { class: "note" }, `the first ${shownRows} × ${shownColumns} of ${rows} × ${columns}`));
  }
  return card;
}
