// Draws layouts: the lane and register of each element of a tile, and the banks of shared memory of an access.
//
// A layout is linear over F2: the element at a position is the XOR of the bases of the position's set bits. It comes as
// { id, shape, register: [..], lane: [..], warp: [..], block: [..], offset: [..] }, the bases of each input; elements are
// counted row after row. The page of `tilewright explain` and the visualizer share this file; it imports nothing.

const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value != null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== false));
  return made;
};

const apply = (bases, number) => {
  let sum = 0;
  for (let bit = 0; bit < bases.length; bit++) if (number >> bit & 1) sum ^= bases[bit];
  return sum;
};

const INPUTS = ["register", "lane", "warp", "block", "offset"];

/** Returns whether a layout is of a buffer in shared memory. */
export const isMemory = (layout) => layout.offset.length > 0;

/** Returns the positions of each element: [{ register, lane, warp, block, offset }]. */
export function owners(layout) {
  const size = layout.shape.reduce((product, extent) => product * extent, 1);
  const found = Array.from({ length: size }, () => []);
  const counts = INPUTS.map((input) => 1 << layout[input].length);
  const place = [0, 0, 0, 0, 0];
  for (;;) {
    let at = 0;
    for (let input = 0; input < 5; input++) at ^= apply(layout[INPUTS[input]], place[input]);
    found[at].push({ register: place[0], lane: place[1], warp: place[2], block: place[3], offset: place[4] });
    let next = 0;
    while (next < 5 && ++place[next] === counts[next]) place[next++] = 0;
    if (next === 5) return found;
  }
}

/** Describes a position: `warp 1, lane 5, register 0`. */
export function placeText(layout, place) {
  const parts = [["block", "block"], ["warp", "warp"], ["lane", "lane"], ["register", "register"], ["offset", "offset"]];
  const named = parts.filter(([input]) => layout[input].length).map(([input, name]) => `${name} ${place[input]}`);
  return named.join(", ") || "every thread";
}

/**
 * The access of a warp to a buffer: for each instruction the passes of the memory, each a list of { lane, word, bank, conflict }.
 * A pass serves 128 bytes: all lanes at up to 4 bytes a lane, half of them at 8, a quarter at 16.
 */
export function passes(registers, memory, bits, width, warp = 0) {
  const offsetOf = new Map();
  for (let offset = 0; offset < 1 << memory.offset.length; offset++) offsetOf.set(apply(memory.offset, offset), offset);
  const at = (register, lane) =>
    offsetOf.get(apply(registers.register, register) ^ apply(registers.lane, lane) ^ apply(registers.warp, warp));
  const groups = new Map();
  for (let register = 0; register < 1 << registers.register.length; register++) {
    const key = Math.floor(at(register, 0) / width);
    groups.set(key, [...(groups.get(key) ?? []), register]);
  }
  const bytes = width * bits / 8, lanes = 1 << registers.lane.length;
  const together = Math.min(Math.floor(128 / Math.max(bytes, 4)), lanes);
  return [...groups.values()].map((group) => {
    const found = [];
    for (let first = 0; first < lanes; first += together) {
      const touched = [], words = new Map();
      for (let lane = first; lane < first + together; lane++) {
        const start = Math.min(...group.map((register) => at(register, lane))) * bits / 8;
        for (let word = Math.floor(start / 4); word <= Math.floor((start + bytes - 1) / 4); word++) {
          const bank = word % 32;
          if (!words.has(bank)) words.set(bank, []);
          if (!words.get(bank).includes(word)) words.get(bank).push(word);
          touched.push({ lane, word, bank });
        }
      }
      for (const touch of touched) touch.conflict = words.get(touch.bank).indexOf(touch.word);
      found.push({ touched, wavefronts: Math.max(...[...words.values()].map((list) => list.length)) });
    }
    return found;
  });
}

const hue = (number, count) => Math.round(360 * number / Math.max(count, 1));

function color(layout, place, mode, bits, dark) {
  const light = (share) => dark ? 28 + 30 * share : 88 - 34 * share;
  if (isMemory(layout)) {
    const bank = Math.floor(place.offset * bits / 32) % 32;
    return `hsl(${hue(bank, 32)} 60% ${light(0.5)}%)`;
  }
  const share = (input) => place[input] / Math.max((1 << layout[input].length) - 1, 1);
  if (mode === "register") return `hsl(${hue(place.register, 1 << layout.register.length)} 55% ${light(0.4)}%)`;
  if (mode === "lane") return `hsl(${hue(place.lane, 32)} 55% ${light(0.2 + 0.5 * share("register"))}%)`;
  return `hsl(${hue(place.warp, 1 << layout.warp.length)} 55% ${light(share("lane"))}%)`;
}

/** The rows and columns that a tile is drawn in; a line is folded, further axes are planes. */
function frame(shape) {
  const size = shape.reduce((product, extent) => product * extent, 1);
  if (shape.length < 2) {
    const columns = Math.min(size, size > 256 ? 64 : 32);
    return { rows: size / columns, columns, planes: 1 };
  }
  const [rows, columns] = shape.slice(-2);
  return { rows, columns, planes: size / (rows * columns) };
}

const coordinates = (shape, index) => {
  const found = [];
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    found.unshift(index % shape[axis]);
    index = Math.floor(index / shape[axis]);
  }
  return found;
};

/** Draws a layout into an element. `bits` are those of an element of a buffer. */
export function drawLayout(into, layout, { bits = 32, dark = false } = {}) {
  const held = owners(layout), { rows, columns, planes } = frame(layout.shape);
  const memory = isMemory(layout);
  let mode = layout.warp.length ? "warp" : "lane", plane = 0, marked = null;
  const canvas = element("canvas", { class: "layout", tabindex: 0, "data-layout": layout.id });
  const note = element("output", { class: "owner" });
  const cell = Math.max(3, Math.min(54, Math.floor(880 / columns), Math.floor(4_000_000 / (rows * columns * 8))));
  const ratio = globalThis.devicePixelRatio || 1;
  const same = (a, b) => memory ? Math.floor(a.offset * bits / 32) % 32 === Math.floor(b.offset * bits / 32) % 32
    : a.lane === b.lane && a.warp === b.warp && a.block === b.block;

  function paint() {
    const tall = Math.min(cell, 26);
    canvas.width = columns * cell * ratio;
    canvas.height = rows * tall * ratio;
    canvas.style.width = `${columns * cell}px`;
    canvas.style.height = `${rows * tall}px`;
    const draw = canvas.getContext("2d");
    draw.scale(ratio, ratio);
    draw.font = `${Math.min(11, cell / 4)}px ui-monospace, monospace`;
    draw.textAlign = "center";
    draw.textBaseline = "middle";
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const places = held[(plane * rows + row) * columns + column], place = places[0];
        const [x, y] = [column * cell, row * tall];
        if (!place) continue;
        const isMarked = marked && places.some((one) => same(one, marked));
        draw.fillStyle = color(layout, place, mode, bits, dark);
        draw.fillRect(x, y, cell - (cell > 6 ? 1 : 0), tall - (tall > 6 ? 1 : 0));
        if (isMarked) {
          draw.fillStyle = dark ? "#ffffffb0" : "#000000a0";
          draw.fillRect(x, y, cell - 1, tall - 1);
        }
        if (cell >= 26) {
          draw.fillStyle = isMarked !== dark && isMarked ? "#fff" : dark ? "#fff" : "#111";
          if (isMarked) draw.fillStyle = dark ? "#000" : "#fff";
          const text = memory ? `b${Math.floor(place.offset * bits / 32) % 32}` : `${layout.warp.length ? `w${place.warp} ` : ""}${place.lane}:${place.register}`;
          draw.fillText(places.length > 1 ? `${text}+` : text, x + cell / 2, y + tall / 2, cell - 2);
        }
      }
    }
    canvas.setAttribute("aria-label", `layout ${layout.id}, ${rows} by ${columns} elements`);
  }

  function show(event) {
    const box = canvas.getBoundingClientRect(), tall = Math.min(cell, 26);
    const column = Math.floor((event.clientX - box.left) / cell), row = Math.floor((event.clientY - box.top) / tall);
    if (row < 0 || column < 0 || row >= rows || column >= columns) return;
    const index = (plane * rows + row) * columns + column, places = held[index];
    marked = places[0] ?? null;
    const texts = places.slice(0, 4).map((place) => placeText(layout, place));
    const more = places.length > 4 ? ` and ${places.length - 4} more` : "";
    const bank = memory && marked ? `, bank ${Math.floor(marked.offset * bits / 32) % 32}` : "";
    note.value = `[${coordinates(layout.shape, index).join(", ")}]: ${texts.join("; ")}${more}${bank}`;
    paint();
  }
  canvas.addEventListener("mousemove", show);
  canvas.addEventListener("mouseleave", () => { marked = null; paint(); });
  const modes = memory ? [] : ["warp", "lane", "register"].filter((name) => name !== "warp" || layout.warp.length);
  const buttons = modes.map((name) => element("button", {
    "aria-pressed": String(name === mode),
    onclick: (event) => {
      mode = name;
      for (const other of event.target.parentElement.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === event.target));
      paint();
    },
  }, name));
  const slider = planes > 1 && element("label", {}, "plane ", element("input", {
    type: "range", min: 0, max: planes - 1, value: 0, oninput: (event) => { plane = Number(event.target.value); paint(); },
  }));
  const key = memory ? "colored by the bank that the element begins in" : "colors; a cell says warp, lane : register, + where others hold copies";
  const holds = memory ? `${1 << layout.offset.length} elements in shared memory`
    : `${1 << layout.warp.length} warps, ${1 << layout.register.length} registers a thread`;
  into.replaceChildren(
    element("p", { class: "layout-title" }, element("b", {}, layout.id), ` [${layout.shape.join(", ")}] `, holds),
    element("code", { class: "layout-text" }, layout.text ?? ""),
    element("div", { class: "layout-bar" }, ...buttons, slider, element("small", {}, key)),
    element("div", { class: "layout-box" }, canvas),
    note,
  );
  paint();
}

/** Draws the banks of shared memory that an access of a warp uses, pass by pass. */
export function drawBanks(into, access, layouts, { dark = false } = {}) {
  const registers = layouts.get(access.registers), memory = layouts.get(access.memory);
  const what = access.kind === "store" ? "stores" : access.kind === "load" ? "loads" : "loads by ldmatrix";
  const conflicts = access.wavefronts - access.least;
  const title = element("p", { class: "layout-title" },
    element("b", {}, `${access.value || "a value"} ${what}`),
    ` ${access.bits * access.width / 8} bytes a lane to ${access.memory}: ${access.instructions} instructions of a block, `,
    element("span", { class: conflicts ? "bad" : "good" },
      conflicts ? `${conflicts} passes for bank conflicts` : "no bank conflict"));
  if (!registers) {
    // Eight lanes name rows of 16 bytes: the buffer's own layout shows their banks.
    const box = element("div");
    into.replaceChildren(title, box);
    drawLayout(box, memory, { bits: access.bits, dark });
    return;
  }
  const warps = 1 << registers.warp.length;
  let warp = 0, number = 0;
  const table = element("div", { class: "banks" });
  const note = element("output", { class: "owner" });
  function paint() {
    const all = passes(registers, memory, access.bits, access.width, warp);
    number = Math.min(number, all.length - 1);
    const rows = [element("div", { class: "bank-row" }, element("span", {}, "bank"),
      ...Array.from({ length: 32 }, (_, bank) => element("i", { class: "head" }, String(bank))))];
    all[number].forEach((pass, index) => {
      rows.push(element("div", { class: "pass" }, `pass ${index + 1}: ${pass.wavefronts} wavefront${pass.wavefronts > 1 ? "s" : ""}`));
      const lanes = new Map();
      for (const touch of pass.touched) lanes.set(touch.lane, [...(lanes.get(touch.lane) ?? []), touch]);
      for (const [lane, touches] of lanes) {
        const row = element("div", { class: "bank-row" }, element("span", {}, `lane ${lane}`),
          ...Array.from({ length: 32 }, () => element("i")));
        for (const touch of touches) {
          const at = row.children[touch.bank + 1];
          at.className = touch.conflict ? "conflict" : "hit";
          at.title = `lane ${lane}, word ${touch.word}, bank ${touch.bank}`;
          if (!touch.conflict) at.style.background = `hsl(${hue(lane, 32)} 55% ${dark ? 45 : 65}%)`;
        }
        rows.push(row);
      }
    });
    table.replaceChildren(...rows);
    note.value = `warp ${warp}, instruction ${number + 1} of ${all.length}`;
  }
  const range = (label, count, change) => count > 1 && element("label", {}, `${label} `, element("input", {
    type: "range", min: 0, max: count - 1, value: 0, oninput: (event) => { change(Number(event.target.value)); paint(); },
  }));
  const count = passes(registers, memory, access.bits, access.width, 0).length;
  into.replaceChildren(title,
    element("div", { class: "layout-bar" }, range("warp", warps, (value) => { warp = value; }),
      range("instruction", count, (value) => { number = value; }), note), table);
  paint();
}

/** The wavefronts of an access over all warps, as they are drawn. */
export function wavefronts(access, layouts) {
  const registers = layouts.get(access.registers), memory = layouts.get(access.memory);
  let sum = 0;
  for (let warp = 0; warp < 1 << registers.warp.length; warp++) {
    for (const instruction of passes(registers, memory, access.bits, access.width, warp)) {
      for (const pass of instruction) sum += pass.wavefronts;
    }
  }
  return sum;
}

/** The values of a printed GPU stage by the layout that their type names: "L3" -> ["%x: fp32[128]"]. */
export function valuesByLayout(lines) {
  const found = new Map();
  const add = (id, text) => {
    const list = found.get(id) ?? found.set(id, []).get(id);
    if (!list.includes(text)) list.push(text);
  };
  for (const line of lines) {
    for (const [, name, type, id] of line.matchAll(/(%[\w.]+): ([^,@(){}]*(?:\[[^\]]*\])?)@(L\d+)/g)) add(id, `${name}: ${type}`);
    const made = line.match(/^\s*(%[^=]+) = (\S+).* : (.*)$/);
    if (!made) continue;
    const types = [...made[3].matchAll(/((?:\w+<(?:\d+, )?)?[\w*]+\[[^\]]*\])@(L\d+)>?/g)];
    const names = made[1].split(",").map((name) => name.trim());
    types.forEach(([, type, id], index) => add(id, `${names[Math.min(index, names.length - 1)]}: ${type.replace(/^.*</, "")} (${made[2]})`));
  }
  return found;
}
