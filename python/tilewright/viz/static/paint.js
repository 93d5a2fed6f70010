// Pictures that are drawn once and shown twice: on a canvas, and as SVG for export.

const FONT = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';

/** Draws on a canvas. */
export class CanvasPainter {
  constructor(canvas, width, height) {
    const ratio = Math.min(devicePixelRatio || 1, 4096 / Math.max(width, height, 1));
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    this.context = canvas.getContext("2d");
    this.context.setTransform(canvas.width / width, 0, 0, canvas.height / height, 0, 0);
  }

  rect(x, y, width, height, { fill, stroke, line = 1, round = 0, dash } = {}) {
    const context = this.context;
    context.beginPath();
    if (round) context.roundRect(x, y, width, height, round);
    else context.rect(x, y, width, height);
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.setLineDash(dash || []);
      context.stroke();
    }
  }

  line(x1, y1, x2, y2, color, width = 1) {
    const context = this.context;
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.strokeStyle = color;
    context.lineWidth = width;
    context.setLineDash([]);
    context.stroke();
  }

  text(text, x, y, { color, size = 11, align = "center" } = {}) {
    const context = this.context;
    context.fillStyle = color;
    context.font = `${size}px ${FONT}`;
    context.textAlign = align;
    context.textBaseline = "middle";
    context.fillText(text, x, y);
  }
}

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

/** Writes SVG. */
export class SvgPainter {
  constructor(width, height, background) {
    this.head = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`;
    this.parts = [`<rect width="100%" height="100%" fill="${background}"/>`];
  }

  rect(x, y, width, height, { fill, stroke, line = 1, round = 0, dash } = {}) {
    const extra = (round ? ` rx="${round}"` : "") + (dash ? ` stroke-dasharray="${dash.join(" ")}"` : "");
    const outline = stroke ? ` stroke="${stroke}" stroke-width="${line}"` : "";
    this.parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${fill || "none"}"${outline}${extra}/>`);
  }

  line(x1, y1, x2, y2, color, width = 1) {
    this.parts.push(`<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="${color}" stroke-width="${width}"/>`);
  }

  text(text, x, y, { color, size = 11, align = "center" } = {}) {
    const anchor = { center: "middle", left: "start", right: "end" }[align];
    this.parts.push(
      `<text x="${x}" y="${y}" fill="${color}" font-family="${escape(FONT)}" font-size="${size}" text-anchor="${anchor}" dominant-baseline="central">${escape(text)}</text>`,
    );
  }

  finish() {
    return `${this.head}${this.parts.join("")}</svg>`;
  }
}

export function download(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
