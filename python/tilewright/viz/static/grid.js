// The grid as a picture: a cell a program, colored by its time, or in the color of its accesses.

import { CanvasPainter } from "./paint.js";
import { count, duration, find, heat, inkOn, programColor, rgb, tip, variable } from "./util.js";

const GAP = 14;

/** The positions of programs: a long grid of one axis is wrapped into rows. */
function layout(grid, width) {
  let [x, y, z] = grid;
  const wrapped = y * z === 1 && x > 32;
  if (wrapped) {
    const columns = Math.min(x, Math.max(16, Math.ceil(Math.sqrt(x * 2.5))));
    y = Math.ceil(x / columns);
    x = columns;
  }
  const planes = Math.min(z, 64);
  const room = Math.max(120, width);
  const cell = Math.max(3, Math.min(34, Math.floor(room / x), Math.floor(260 / Math.max(1, y))));
  const across = Math.max(1, Math.min(planes, Math.floor(room / (x * cell + GAP))));
  return { x, y, planes, cell, across, wrapped };
}

export class Grid {
  constructor(pick) {
    this.canvas = find("grid");
    this.pick = pick;
    this.canvas.addEventListener("click", (event) => {
      const program = this.at(event);
      if (program != null) pick(program);
    });
    this.canvas.addEventListener("mousemove", (event) => {
      const program = this.at(event);
      tip(program == null ? "" : this.describe(program), event);
    });
    this.canvas.addEventListener("mouseleave", () => tip(""));
  }

  /** `marked`: the programs with findings. */
  show(launch, selected, marked) {
    this.launch = launch;
    this.marked = marked;
    this.canvas.dataset.marked = [...marked].sort((a, b) => a - b).join();
    this.byNumber = new Map(launch.programs.map((program) => [program[0], program]));
    // A program that was interrupted would make all others pale.
    const times = launch.programs.map(([, , nanoseconds]) => nanoseconds).sort((a, b) => a - b);
    this.most = Math.max(1, times[Math.floor(0.97 * (times.length - 1))]);
    this.draw(selected);
  }

  describeGrid() {
    const { grid, programs } = this.launch;
    const total = grid[0] * grid[1] * grid[2];
    const sampled = programs.filter(([, flags]) => flags & 1).length;
    find("grid-note").textContent =
      `${grid.join(" × ")}: ${count(total)} program${total === 1 ? "" : "s"}` +
      (sampled < total ? `, ${count(sampled)} with values (dotted)` : "") + (this.isByProgram ? ", by program" : this.launch.device ? "" : ", by time");
  }

  /** `shown`: the programs of the finding that is selected. */
  draw(selected, shown = new Set(), isByProgram = false) {
    const { launch } = this;
    this.isByProgram = isByProgram;
    this.describeGrid();
    this.canvas.dataset.shown = [...shown].sort((a, b) => a - b).join();
    const place = (this.layout = layout(launch.grid, this.canvas.parentElement.clientWidth - 28));
    const rows = Math.ceil(place.planes / place.across);
    const width = place.across * (place.x * place.cell + GAP) - GAP + 4;
    const height = rows * (place.y * place.cell + GAP);
    const painter = new CanvasPainter(this.canvas, width, height);
    const total = launch.grid[0] * launch.grid[1] * place.planes;
    const allSampled = launch.programs.every(([, flags]) => flags & 1);
    for (let number = 0; number < total; number++) {
      const [x, y] = this.corner(number);
      const program = this.byNumber.get(number);
      const size = place.cell - (place.cell > 6 ? 2 : 0.5);
      const round = place.cell > 10 ? 3 : 0;
      if (!program) {
        painter.rect(x, y, size, size, { fill: variable("--cell"), round });
        continue;
      }
      const [, flags, nanoseconds] = program;
      const color = isByProgram ? programColor(number) : flags & 4 ? [220, 38, 38] : heat(nanoseconds / this.most);
      painter.rect(x, y, size, size, { fill: rgb(color), round });
      if (!allSampled && flags & 1 && place.cell >= 6) {
        painter.rect(x + size / 2 - 1, y + size / 2 - 1, 2, 2, { fill: variable("--ink") });
      }
      if (this.marked.has(number)) {
        const dot = Math.max(2, Math.min(9, size / 2.5));
        painter.rect(x + size - dot, y, dot, dot, { fill: variable("--bad"), round: dot > 4 ? dot / 2 : 0 });
        painter.rect(x, y, size, size, { stroke: variable("--bad"), line: place.cell > 10 ? 1.5 : 1, round });
      }
      if (shown.has(number)) painter.rect(x + 1, y + 1, size - 2, size - 2, { stroke: variable("--bad"), line: place.cell > 10 ? 3.5 : 2, round });
      if (place.cell >= 26 && total <= 400) {
        painter.text(String(number), x + size / 2, y + size / 2, { color: inkOn(color), size: 10 });
      }
    }
    if (selected != null && selected < total) {
      const [x, y] = this.corner(selected);
      painter.rect(x - 1, y - 1, place.cell, place.cell, { stroke: variable("--accent"), line: 2.5, round: place.cell > 10 ? 4 : 0 });
    }
  }

  corner(number) {
    const { x, y, cell, across, wrapped } = this.layout;
    const plane = wrapped ? 0 : Math.floor(number / (this.launch.grid[0] * this.launch.grid[1]));
    const within = wrapped ? number : number % (this.launch.grid[0] * this.launch.grid[1]);
    const left = (plane % across) * (x * cell + GAP) + 2;
    const top = Math.floor(plane / across) * (y * cell + GAP) + 2;
    return [left + (within % x) * cell, top + Math.floor(within / x) * cell];
  }

  at(event) {
    const { x, y, cell, across, planes, wrapped } = this.layout;
    const [width, height] = [x * cell + GAP, y * cell + GAP];
    const plane = Math.floor(event.offsetX / width) + Math.floor(event.offsetY / height) * across;
    const [column, row] = [Math.floor(((event.offsetX % width) - 2) / cell), Math.floor(((event.offsetY % height) - 2) / cell)];
    if (column < 0 || row < 0 || column >= x || row >= y || plane >= planes) return null;
    const number = wrapped ? row * x + column : plane * this.launch.grid[0] * this.launch.grid[1] + row * x + column;
    return number < this.launch.grid[0] * this.launch.grid[1] * this.launch.grid[2] ? number : null;
  }

  describe(number) {
    const program = this.byNumber.get(number);
    const name = `program (${coordinates(this.launch.grid, number).join(", ")})`;
    if (!program) return `${name}\nnot recorded`;
    const notes = [duration(program[2])];
    if (program[1] & 4) notes.push("stopped here");
    else if (this.marked.has(number)) notes.push("something was found in it");
    if (!(program[1] & 1)) notes.push("only accesses are recorded");
    return `${name}\n${notes.join(", ")}`;
  }
}

export function coordinates([x, y], number) {
  return [number % x, Math.floor(number / x) % y, Math.floor(number / x / y)];
}
