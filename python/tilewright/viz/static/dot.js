// A dot, step by step: rows of A, columns of B, and the accumulator C.

import { CanvasPainter } from "./paint.js";
import { brief, find, h, inkOn, numeric, rgb, scale, variable } from "./util.js";

const GAP = 16;

export class DotView {
  constructor() {
    this.box = find("dot");
    this.timer = 0;
  }

  hide() {
    this.pause();
    this.box.hidden = true;
    this.data = null;
  }

  /** The elements of a, b and the accumulator, and their shapes. */
  show({ a, b, acc, result, shapes }) {
    this.pause();
    this.box.hidden = false;
    const [m, k] = shapes.a.slice(-2);
    const n = shapes.b.at(-1);
    this.data = { a: a.map(numeric), b: b.map(numeric), acc: acc.map(numeric), result, m, n, k };
    this.row = 0;
    this.column = 0;
    this.slider = h("input", { type: "range", min: 0, max: k, value: k, "aria-label": "steps of k", oninput: () => this.draw() });
    this.button = h("button", { title: "Play (space)", onclick: () => this.play() }, "▶");
    this.label = h("span", { class: "note", id: "dot-step" });
    this.formula = h("div", { class: "formula", id: "dot-formula" });
    this.canvas = h("canvas", { "aria-label": "blocks of A, B and C" });
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.box.replaceChildren(h("div", { class: "bar" }, this.button, this.slider, this.label), h("div", { class: "scroll" }, this.canvas), this.formula);
    this.scales = [scale(this.data.a), scale(this.data.b), scale(this.partial(k).concat(this.data.acc))];
    this.draw();
  }

  partial(steps) {
    const { a, b, acc, m, n, k } = this.data;
    const out = acc.slice(0, m * n);
    for (let i = 0; i < m; i++) {
      for (let step = 0; step < steps; step++) {
        const left = a[i * k + step];
        for (let j = 0; j < n; j++) out[i * n + j] += left * b[step * n + j];
      }
    }
    return out;
  }

  draw() {
    const { a, b, m, n, k } = this.data;
    const steps = Number(this.slider.value);
    const width = Math.max(200, this.box.clientWidth - 30);
    const cell = Math.max(2, Math.min(20, Math.floor((width - GAP - 8) / (k + n))));
    this.cell = cell;
    const painter = new CanvasPainter(this.canvas, (k + n) * cell + GAP + 24, (k + m) * cell + GAP + 18);
    const [left, top] = [k * cell + GAP, k * cell + GAP];
    this.origin = { left, top };
    const now = steps - 1;
    const matrix = (elements, rows, columns, x, y, colors, isOn) => {
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
          const value = elements[row * columns + column];
          const color = colors.color(value);
          const size = cell - (cell > 5 ? 1 : 0);
          painter.rect(x + column * cell, y + row * cell, size, size, { fill: rgb(color) });
          if (cell >= 18) painter.text(brief(value, 3), x + column * cell + size / 2, y + row * cell + cell / 2, { color: inkOn(color), size: 8 });
          if (isOn(row, column)) painter.rect(x + column * cell, y + row * cell, size, size, { stroke: variable("--dot"), line: 2 });
        }
      }
    };
    const out = this.partial(steps);
    const soft = { color: variable("--soft"), size: 11, align: "left" };
    matrix(a, m, k, 0, top, this.scales[0], (row, column) => row === this.row && column === now);
    matrix(b, k, n, left, 0, this.scales[1], (row, column) => column === this.column && row === now);
    matrix(out, m, n, left, top, this.scales[2], (row, column) => row === this.row && column === this.column);
    painter.text(`A ${m}×${k}`, 2, top - 9, soft);
    painter.text(`B ${k}×${n}`, Math.max(0, left - 62), 8, soft);
    painter.text("C", left, top + m * cell + 9, soft);
    if (now >= 0) {
      painter.rect(now * cell - 1, top - 1, cell + 1, m * cell + 1, { stroke: variable("--store"), line: 1.5 });
      painter.rect(left - 1, now * cell - 1, n * cell + 1, cell + 1, { stroke: variable("--store"), line: 1.5 });
    }
    this.label.textContent = `k: ${steps} of ${k}`;
    const terms = Array.from({ length: steps }, (_, step) => `${brief(a[this.row * k + step], 6)}·${brief(b[step * n + this.column], 6)}`);
    const start = brief(this.data.acc[this.row * n + this.column], 6);
    this.formula.textContent = `C[${this.row}, ${this.column}] = ${[start, ...terms].join(" + ")} = ${brief(out[this.row * n + this.column], 10)}`;
  }

  hover(event) {
    const { left, top } = this.origin;
    const [column, row] = [Math.floor((event.offsetX - left) / this.cell), Math.floor((event.offsetY - top) / this.cell)];
    if (row >= 0 && column >= 0 && row < this.data.m && column < this.data.n && (row !== this.row || column !== this.column)) {
      [this.row, this.column] = [row, column];
      this.draw();
    }
  }

  play() {
    if (!this.data) return;
    if (this.timer) return this.pause();
    if (Number(this.slider.value) >= this.data.k) this.slider.value = 0;
    this.button.textContent = "❚❚";
    this.timer = setInterval(() => {
      this.slider.value = Number(this.slider.value) + 1;
      this.draw();
      if (Number(this.slider.value) >= this.data.k) this.pause();
    }, Math.max(40, 2400 / this.data.k));
  }

  pause() {
    clearInterval(this.timer);
    this.timer = 0;
    if (this.button) this.button.textContent = "▶";
  }
}
