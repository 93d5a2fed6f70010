// A tensor as a heat map: values, accesses, programs or races, with the elements that the selected op accesses.

import { coordinates } from "./grid.js";
import { CanvasPainter, SvgPainter, download } from "./paint.js";
import { brief, faded, find, heat, inkOn, programColor, rgb, scale, sequential, tip, variable } from "./util.js";

const MARGIN = { left: 40, top: 20 };
const MOST_GHOSTS = 64;
const PAGE_SCROLLS = matchMedia("(max-width: 1050px)");

/** The arrangement of a tensor's elements: planes of rows. A tensor of one axis is wrapped. */
export function layout(tensor, plane, width, height, block) {
  const shape = tensor.shape;
  const total = shape.reduce((product, extent) => product * extent, 1);
  let [rows, columns, planes] = [1, total, 1];
  const isWrapped = shape.length < 2;
  if (isWrapped) {
    const near = 2 ** Math.round(Math.log2(Math.sqrt(total * 1.5)));
    const fits = block && block <= 64 && total > block && total / block <= 64;
    columns = Math.max(1, Math.min(total, fits ? block : total <= 16 ? total : Math.min(1024, Math.max(8, near))));
    rows = Math.ceil(total / columns);
  } else {
    columns = shape.at(-1);
    rows = shape.at(-2);
    planes = total / Math.max(1, rows * columns);
  }
  const fitting = Math.min((width - MARGIN.left) / Math.max(1, columns), Math.max(7, (height - MARGIN.top) / Math.max(1, rows)));
  const cell = Math.max(Math.max(1, Math.min(4, Math.floor(4096 / Math.max(rows, columns)))), Math.min(columns <= 16 ? 44 : 34, Math.floor(fitting)));
  return { rows, columns, planes, plane: Math.min(plane, Math.max(0, planes - 1)), cell, total, isWrapped };
}

export class TensorView {
  constructor(events) {
    this.canvas = find("tensor");
    this.events = events;
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => {
      tip("");
      events.light(null);
    });
    this.canvas.addEventListener("click", (event) => {
      const place = this.at(event);
      if (place != null) events.who(place);
    });
  }

  /** `data`: tensor, elements, overlaps, touched, mode, plane, lit (an element that is pointed at elsewhere), marks (the findings at
   * each place), findings, finding (the selected one), programs (those of each place), grid. */
  show(data) {
    this.data = data;
    this.canvas.dataset.marked = [...data.marks.keys()].sort((a, b) => a - b).slice(0, 256).join();
    const box = this.canvas.parentElement;
    // The height of a page that scrolls follows from the picture, and not the other way round.
    const height = PAGE_SCROLLS.matches ? 0.6 * innerHeight : box.clientHeight - 12;
    const width = box.clientWidth - 28;
    const block = data.touched ? data.blockWidth : 0;
    this.layout = layout(data.tensor, data.plane, width, height, block);
    this.prepare();
    const size = this.size();
    this.draw(new CanvasPainter(this.canvas, size.width, size.height));
  }

  size() {
    const { columns, rows, cell } = this.layout;
    const ghosts = this.ghosts.length ? Math.ceil(this.ghosts.length / columns) * cell + 26 : 0;
    return { width: MARGIN.left + Math.max(columns * cell, this.ghosts.length ? 240 : 0) + 3, height: MARGIN.top + rows * cell + ghosts + 3 };
  }

  /** The effect of the selected op on each element. */
  prepare() {
    const { touched, tensor, number } = this.data;
    this.active = new Map();
    this.masked = new Set();
    this.ghosts = [];
    if (!touched) return;
    touched.places.forEach((place, lane) => {
      const isActive = touched.mask[lane] === 1;
      if (touched.tensors[lane] === number) {
        if (isActive) this.active.set(place, (this.active.get(place) || 0) + 1);
        else this.masked.add(place);
      } else if (touched.tensor === number) {
        this.ghosts.push({ lane, offset: touched.bytes[lane] / tensor.size, isActive });
      }
    });
    this.ghosts.sort((a, b) => b.isActive - a.isActive || a.offset - b.offset);
    this.ghostCount = this.ghosts.length;
    this.ghosts.length = Math.min(this.ghosts.length, MOST_GHOSTS);
  }

  colorer() {
    const { mode, elements, overlaps, programs } = this.data;
    const plain = variable("--cell");
    if (mode === "values" && elements) {
      const colors = scale(elements);
      this.scale = colors;
      return (place) => colors.color(elements[place]);
    }
    this.scale = null;
    if (mode === "programs") return (place) => (programs?.[place].length ? programColor(programs[place][0]) : null);
    if (mode !== "values" && overlaps && !overlaps.tooLarge) {
      const all = overlaps.readers.map((readers, place) => readers + overlaps.writers[place] + overlaps.atomics[place]);
      const most = Math.max(1, ...all.slice(0, 100000));
      this.most = most;
      if (mode === "races") {
        const raced = new Set(overlaps.races);
        return (place) => (raced.has(place) ? [220, 38, 38] : all[place] ? sequential(0.12) : null);
      }
      return (place) => {
        if (!all[place]) return null;
        const t = 0.25 + (0.75 * all[place]) / most;
        return overlaps.writers[place] + overlaps.atomics[place] ? heat(t) : sequential(t);
      };
    }
    return () => null || plain;
  }

  draw(painter) {
    const { layout: place, data } = this;
    const { cell, rows, columns, plane, total } = place;
    const color = this.colorer();
    const gap = cell > 8 ? 1 : 0;
    const hasText = cell >= 22 && data.mode === "values" && data.elements && rows * columns <= 4000;
    const isDimmed = data.mode === "values" && this.active.size > 0 && this.active.size < total;
    const base = plane * rows * columns;
    const plain = variable("--cell");
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const at = base + row * columns + column;
        if (at >= total) break;
        let found = color(at);
        if (isDimmed && Array.isArray(found) && !this.active.has(at)) found = faded(found);
        const fill = Array.isArray(found) ? rgb(found) : plain;
        const [x, y] = [MARGIN.left + column * cell, MARGIN.top + row * cell];
        painter.rect(x, y, cell - gap, cell - gap, { fill });
        if (data.mode === "programs") this.split(painter, x, y, cell - gap, data.programs?.[at] || []);
        if (this.masked.has(at)) this.hatch(painter, x, y, cell - gap);
        if (hasText) {
          const ink = Array.isArray(found) ? inkOn(found) : variable("--ink");
          painter.text(brief(data.elements[at], Math.floor((cell - 3) / (cell > 36 ? 6.7 : 5.8))), x + (cell - gap) / 2, y + cell / 2, { color: ink, size: cell > 36 ? 11 : 9.5 });
        }
      }
    }
    this.outline(painter);
    this.mark(painter);
    this.rulers(painter);
    this.drawGhosts(painter);
  }

  /** A frame around each element that the op accesses; with small cells around all of them. */
  outline(painter) {
    const { cell } = this.layout;
    const line = cell >= 14 ? 2 : cell >= 6 ? 1.5 : 1;
    const raced = new Set(this.data.overlaps && !this.data.overlaps.tooLarge ? this.data.overlaps.races : []);
    for (const [place, times] of this.active) {
      const corner = this.corner(place);
      if (!corner) continue;
      const [x, y] = corner;
      const color = raced.has(place) ? variable("--bad") : variable("--accent");
      const isAt = (other, wraps) => !wraps && this.active.has(other);
      const { columns } = this.layout;
      const column = place % columns;
      const end = cell - (cell > 8 ? 1 : 0);
      if (!isAt(place - columns, place < columns)) painter.line(x - 0.5, y, x + end + 0.5, y, color, line);
      if (!isAt(place + columns, false)) painter.line(x - 0.5, y + end, x + end + 0.5, y + end, color, line);
      if (!isAt(place - 1, column === 0)) painter.line(x, y - 0.5, x, y + end + 0.5, color, line);
      if (!isAt(place + 1, column === columns - 1)) painter.line(x + end, y - 0.5, x + end, y + end + 0.5, color, line);
      if (times > 1 && cell >= 20) painter.text(`${times}×`, x + end - 3, y + 6, { color, size: 8, align: "right" });
    }
    const lit = this.data.lit != null ? this.corner(this.data.lit) : null;
    if (lit) painter.rect(lit[0] - 1, lit[1] - 1, cell + 1, cell + 1, { stroke: variable("--store"), line: 3 });
  }

  /** The elements with findings, those of the selected finding more strongly. */
  mark(painter) {
    const { marks, finding } = this.data;
    const { cell } = this.layout;
    const size = cell - (cell > 8 ? 1 : 0);
    for (const [place, numbers] of marks) {
      const corner = this.corner(place);
      if (!corner) continue;
      const [x, y] = corner;
      const isSelected = finding == null || numbers.has(finding);
      const bad = "#dc2626";
      if (cell < 6) {
        painter.rect(x, y, size, size, { fill: bad });
        continue;
      }
      painter.rect(x + 1.5, y + 1.5, size - 3, size - 3, { stroke: bad, line: isSelected ? 3 : 1.5 });
      const dot = Math.min(8, size / 3);
      painter.rect(x + size - dot, y, dot, dot, { fill: bad });
    }
  }

  /** A stripe for each program but the first, whose color the cell has. */
  split(painter, x, y, size, programs) {
    const width = size / programs.length;
    programs.slice(1).forEach((program, index) => painter.rect(x + (index + 1) * width, y, width, size, { fill: rgb(programColor(program)) }));
  }

  hatch(painter, x, y, size) {
    const color = variable("--hatch");
    if (size < 6) {
      painter.rect(x, y, size, size, { fill: color });
      return;
    }
    for (let at = size / 3; at < 2 * size; at += size / 3) {
      painter.line(x + Math.max(0, at - size), y + Math.min(at, size), x + Math.min(at, size), y + Math.max(0, at - size), color, 1);
    }
  }

  rulers(painter) {
    const { rows, columns, cell, isWrapped, plane } = this.layout;
    const color = variable("--soft");
    const step = (count, room) => [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 256, 512, 1024].find((step) => step * cell >= room) || Math.ceil(count / 4);
    for (let column = 0; column < columns; column += step(columns, 26)) {
      painter.text(String(column), MARGIN.left + column * cell + cell / 2, MARGIN.top - 9, { color, size: 9.5 });
    }
    const first = isWrapped ? columns : 1;
    for (let row = 0; row < rows; row += step(rows, 15)) {
      painter.text(String(row * first + (isWrapped ? plane * rows * columns : 0)), MARGIN.left - 6, MARGIN.top + row * cell + cell / 2, { color, size: 9.5, align: "right" });
    }
  }

  /** Lanes that are outside of the tensor: red if they are accessed, else masked. */
  drawGhosts(painter) {
    if (!this.ghosts.length) return;
    const { rows, columns, cell } = this.layout;
    const top = MARGIN.top + rows * cell + 24;
    const bad = this.ghosts.filter((ghost) => ghost.isActive).length;
    const text = bad ? "out of bounds" : "outside, masked";
    painter.text(`${text}:`, MARGIN.left, top - 11, { color: bad ? variable("--bad") : variable("--soft"), size: 11, align: "left" });
    this.ghosts.forEach((ghost, index) => {
      const [x, y] = [MARGIN.left + (index % columns) * cell, top + Math.floor(index / columns) * cell];
      const size = cell - (cell > 8 ? 1 : 0);
      if (ghost.isActive) {
        painter.rect(x, y, size, size, { fill: variable("--bad") });
        if (cell >= 22) painter.text(String(ghost.offset), x + size / 2, y + size / 2, { color: "#fff", size: 9.5 });
      } else {
        painter.rect(x + 0.5, y + 0.5, size - 1, size - 1, { stroke: variable("--hatch"), dash: [2, 2] });
        this.hatch(painter, x, y, size);
      }
    });
  }

  corner(place) {
    const { rows, columns, plane, cell } = this.layout;
    const within = place - plane * rows * columns;
    if (within < 0 || within >= rows * columns) return null;
    return [MARGIN.left + (within % columns) * cell, MARGIN.top + Math.floor(within / columns) * cell];
  }

  at(event) {
    const { rows, columns, plane, cell, total } = this.layout;
    const [column, row] = [Math.floor((event.offsetX - MARGIN.left) / cell), Math.floor((event.offsetY - MARGIN.top) / cell)];
    const place = plane * rows * columns + row * columns + column;
    return column >= 0 && row >= 0 && column < columns && row < rows && place < total ? place : null;
  }

  /** The multi-index of an element. */
  index(place) {
    const index = [];
    for (const extent of [...this.data.tensor.shape].reverse()) {
      index.unshift(place % extent);
      place = Math.floor(place / extent);
    }
    return index;
  }

  hover(event) {
    if (!this.data) return;
    const place = this.at(event);
    this.events.light(place);
    if (place == null) return tip("");
    const { tensor, elements, overlaps } = this.data;
    const lines = [`${tensor.name}[${this.index(place).join(", ")}]${elements ? ` = ${elements[place]}` : ""}`];
    if (overlaps && !overlaps.tooLarge) {
      const parts = [["read", overlaps.readers], ["written", overlaps.writers], ["accessed atomically", overlaps.atomics]]
        .filter(([, counts]) => counts[place])
        .map(([word, counts]) => `${word} by ${counts[place]} program${counts[place] === 1 ? "" : "s"}`);
      lines.push(parts.join(", ") || "no accesses");
      if (overlaps.races.includes(place)) lines.push("a race: the order of these programs is not defined");
    }
    const programs = this.data.programs?.[place];
    if (programs?.length) lines.push(`program${programs.length === 1 ? "" : "s"} ${programs.map((program) => `(${coordinates(this.data.grid, program).join(", ")})`).join(", ")}`);
    for (const number of this.data.marks.get(place) || []) lines.push(`found: ${this.data.findings[number].message}`);
    if (this.active.has(place)) lines.push("the selected op accesses it");
    else if (this.masked.has(place)) lines.push("masked in the selected op");
    tip(lines.join("\n"), event);
  }

  name() {
    return `${this.data.kernel}-${this.data.tensor.name}-${this.data.mode}`;
  }

  exportPng() {
    const { width, height } = this.size();
    const canvas = document.createElement("canvas");
    const painter = new CanvasPainter(canvas, width, height);
    painter.rect(0, 0, width, height, { fill: variable("--panel") });
    this.draw(painter);
    canvas.toBlob((blob) => download(`${this.name()}.png`, blob));
  }

  exportSvg() {
    const { width, height } = this.size();
    const painter = new SvgPainter(width, height, variable("--panel"));
    this.draw(painter);
    download(`${this.name()}.svg`, new Blob([painter.finish()], { type: "image/svg+xml" }));
  }
}
