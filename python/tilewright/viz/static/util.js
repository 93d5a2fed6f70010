// Helpers of the page: elements, numbers as text, colors.

/** An element with attributes, listeners (`onclick`) and children. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

export const find = (id) => document.getElementById(id);

export function duration(nanoseconds) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (nanoseconds >= size) return `${short(nanoseconds / size)} ${unit}`;
  }
  return `${Math.round(nanoseconds)} ns`;
}

const short = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

export const count = (value) => value.toLocaleString("en-US").replaceAll(",", " ");

/** A number as text for a cell, with a maximum of characters. */
export function brief(value, most = 8) {
  if (typeof value === "boolean") return value ? "1" : "0";
  if (typeof value !== "number") return String(value);
  const text = String(value);
  if (text.length <= most) return text;
  for (let digits = most; digits > 0; digits--) {
    const plain = String(Number(value.toPrecision(digits)));
    if (plain.length <= most) return plain;
    const bare = plain.replace(/^(-?)0\./, "$1.");
    if (bare.length <= most) return bare;
  }
  const tiny = value.toExponential(0);
  return tiny.length > most && Math.abs(value) < 1 ? "~0" : tiny;
}

/** A value as a number, for colors. */
export function numeric(value) {
  if (typeof value === "boolean") return value ? 1 : 0;
  return typeof value === "number" ? value : value === "inf" ? Infinity : value === "-inf" ? -Infinity : Number(value);
}

const mix = (a, b, t) => a.map((part, index) => Math.round(part + (b[index] - part) * t));

function along(stops, t) {
  const place = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const index = Math.min(Math.floor(place), stops.length - 2);
  return mix(stops[index], stops[index + 1], place - index);
}

const SEQUENTIAL = { light: [[238, 243, 252], [158, 190, 240], [64, 118, 214], [24, 55, 140]], dark: [[30, 40, 60], [38, 78, 150], [84, 146, 240], [200, 222, 255]] };
const DIVERGING = { light: [[30, 64, 175], [147, 178, 240], [246, 247, 249], [250, 176, 120], [190, 60, 10]], dark: [[110, 165, 255], [45, 80, 150], [34, 42, 56], [150, 75, 30], [255, 170, 100]] };
const HEAT = { light: [[255, 247, 224], [252, 196, 100], [222, 110, 20], [140, 50, 6]], dark: [[52, 42, 26], [140, 82, 20], [230, 140, 40], [255, 218, 150]] };

export const dark = () => document.documentElement.dataset.theme === "dark";
const tone = (palette) => palette[dark() ? "dark" : "light"];
export const rgb = (color) => `rgb(${color[0]},${color[1]},${color[2]})`;
export const heat = (t) => along(tone(HEAT), t);
export const sequential = (t) => along(tone(SEQUENTIAL), t);
export const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The color of a program: hues by the golden angle, so that neighbors differ, in three lightnesses. */
export function programColor(number) {
  const hue = number * 2.399963 + 4.5;
  const light = (dark() ? [0.7, 0.6, 0.82] : [0.58, 0.65, 0.48])[number % 3];
  return fromOklab(light, 0.125 * Math.cos(hue), 0.125 * Math.sin(hue));
}

/** A color of Oklab in sRGB. */
function fromOklab(light, a, b) {
  const [l, m, s] = [[0.3963377774, 0.2158037573], [-0.1055613458, -0.0638541728], [-0.0894841775, -1.291485548]].map(([x, y]) => (light + x * a + y * b) ** 3);
  const linear = [[4.0767416621, -3.3077115913, 0.2309699292], [-1.2684380046, 2.6097574011, -0.3413193965], [-0.0041960863, -0.7034186147, 1.707614701]].map(([x, y, z]) => Math.min(Math.max(x * l + y * m + z * s, 0), 1));
  return linear.map((part) => Math.round(255 * (part > 0.0031308 ? 1.055 * part ** (1 / 2.4) - 0.055 : 12.92 * part)));
}

/** The color of NaN and infinity, which no scale has. */
const SPECIAL = [217, 70, 239];

/** A function from values to colors, with its ends. */
export function scale(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    const number = numeric(value);
    if (Number.isFinite(number)) {
      if (number < low) low = number;
      if (number > high) high = number;
    }
  }
  if (low > high) [low, high] = [0, 0];
  if (low < 0) {
    const most = Math.max(-low, high) || 1;
    const stops = tone(DIVERGING);
    return { low: -most, high: most, stops, color: (value) => colorOf(value, (number) => along(stops, (number + most) / (2 * most))) };
  }
  const stops = tone(SEQUENTIAL);
  const span = high - low || 1;
  return { low, high, stops, color: (value) => colorOf(value, (number) => along(stops, (number - low) / span)) };
}

function colorOf(value, color) {
  const number = numeric(value);
  return Number.isFinite(number) ? color(number) : SPECIAL;
}

/** A subdued color. */
export const faded = (color) => mix(color, dark() ? [22, 27, 36] : [255, 255, 255], 0.62);

/** Dark or light text, whichever is readable on the color. */
export const inkOn = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#101828" : "#ffffff");

let tipTimer = 0;
export function tip(text, event) {
  const box = find("tip");
  clearTimeout(tipTimer);
  if (!text) {
    box.hidden = true;
    return;
  }
  box.textContent = text;
  box.hidden = false;
  const [x, y] = [event.clientX + 14, event.clientY + 16];
  box.style.left = `${Math.min(x, innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${y + box.offsetHeight > innerHeight ? event.clientY - box.offsetHeight - 8 : y}px`;
}
