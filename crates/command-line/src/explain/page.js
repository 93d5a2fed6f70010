// The page of `tilewright explain`: the stages side by side, linked by the lines of the source.

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const layouts = new Map((data.layouts ?? []).map((layout) => [layout.id, layout]));
const dark = () => document.documentElement.dataset.theme === "dark";
const gpu = data.stages.find((stage) => stage.name === "gpu");

/** The lines and rows that belong to each line of the source. */
const byLine = new Map();
let pinned = 0;

function link(part, line) {
  if (!line) return;
  part.dataset.link = line;
  part.classList.add("linked");
  byLine.set(line, [...(byLine.get(line) ?? []), part]);
  part.addEventListener("mouseenter", () => mark("hot", line));
  part.addEventListener("mouseleave", () => mark("hot", 0));
  part.addEventListener("click", () => pin(pinned === line ? 0 : line, part));
}

function mark(kind, line) {
  for (const part of document.querySelectorAll(`.${kind}`)) part.classList.remove(kind);
  for (const part of byLine.get(line) ?? []) part.classList.add(kind);
}

/** Keeps a source line marked, and scrolls every other pane to the lines that belong to it. */
function pin(line, from) {
  pinned = line;
  mark("pinned", line);
  history.replaceState(null, "", line ? `#line=${line}` : "#");
  const seen = new Set([from?.closest(".text, .body")]);
  for (const part of byLine.get(line) ?? []) {
    const pane = part.closest(".text, .body");
    if (seen.has(pane) || !pane.offsetParent) continue;
    seen.add(pane);
    pane.scrollTop += part.getBoundingClientRect().top - pane.getBoundingClientRect().top - pane.clientHeight / 3;
  }
}

function pane(name, title, lines, links, first = 1) {
  const text = element("div", { class: "text", tabindex: 0 });
  lines.forEach((line, index) => {
    const code = element("span", { class: "code" });
    if (name === "gpu") code.append(...withLayouts(line));
    else code.textContent = line || " ";
    const row = element("div", {}, element("span", { class: "number" }, String(first + index)), code);
    link(row, links[index]);
    text.append(row);
  });
  return element("section", { class: "panel", id: `pane-${name}` }, element("h2", {}, title, element("small", {}, name)), text);
}

/** A line of the GPU stage, whose layouts are links. */
function withLayouts(line) {
  return line.split(/(\bL\d+\b)/).map((part) => layouts.has(part)
    ? element("a", { href: `#${part}`, onclick: (event) => { event.preventDefault(); event.stopPropagation(); showLayout(part); } }, part)
    : part || "");
}

// The panes: the source, then the stages in the order of compilation.
const panes = [];
if (data.source) {
  const { name, firstLine, lines } = data.source;
  panes.push(["source", pane("source", name.split("/").pop(), lines, lines.map((_, index) => firstLine + index), firstLine)]);
}
for (const stage of data.stages) panes.push([stage.name, pane(stage.name, stage.title, stage.lines, stage.links)]);
find("panes").append(...panes.map(([, made]) => made));
const hiddenAtFirst = gpu ? ["ir", "opt"] : ["ir"];
for (const [name, made] of panes) {
  made.hidden = hiddenAtFirst.includes(name);
  find("stages").append(element("button", {
    id: `show-${name}`, "aria-pressed": String(!made.hidden),
    onclick: (event) => {
      made.hidden = !made.hidden;
      event.currentTarget.setAttribute("aria-pressed", String(!made.hidden));
    },
  }, name));
}

find("name").textContent = `${data.name} for ${data.target}`;
find("facts").textContent = data.facts.filter(([name]) => name !== "machine code").map(([name, value]) => `${name}: ${value}`).join(" · ");
const why = data.facts.find(([name]) => name === "machine code");
if (why) find("note").textContent = `no SASS: ${why[1]}`;

// Decisions.
const lineText = (line) => data.source?.lines[line - data.source.firstLine]?.trim() ?? "";
const rows = [...data.remarks].sort((a, b) => a.line - b.line).map((remark) => {
  const row = element("tr", {},
    element("td", { title: lineText(remark.line) }, remark.line ? String(remark.line) : ""),
    element("td", {}, remark.pass), element("td", { class: `kind ${remark.kind}` }, remark.kind),
    element("td", {}, element("code", {}, remark.subject)), element("td", {}, element("code", {}, ...withLayouts(remark.decision))),
    element("td", {}, ...withLayouts(remark.reason)));
  link(row, remark.line);
  return row;
});
const heads = ["line", "pass", "", "of", "decision", "why"].map((head) => element("th", {}, head));
find("decisions").append(rows.length ? element("table", {}, element("tr", {}, ...heads), ...rows)
  : element("p", {}, "No pass reported a decision."));

// Layouts and accesses to shared memory.
const values = valuesByLayout(gpu?.lines ?? []);
const bitsOf = new Map((data.accesses ?? []).map((access) => [access.memory, access.bits]));
let shown = null, banks = null;

function showLayout(id) {
  shown = id;
  select("layouts");
  for (const button of find("layout-list").children) button.setAttribute("aria-pressed", String(button.dataset.layout === id));
  drawLayout(find("layout"), layouts.get(id), { bits: bitsOf.get(id) ?? 32, dark: dark() });
}

function showAccess(number) {
  banks = number;
  select("memory");
  [...find("access-list").children].forEach((button, index) => button.setAttribute("aria-pressed", String(index === number)));
  drawBanks(find("banks"), data.accesses[number], layouts, { dark: dark() });
}

for (const layout of layouts.values()) {
  const named = values.get(layout.id) ?? [];
  find("layout-list").append(element("button", { "data-layout": layout.id, title: named.join("\n"), onclick: () => showLayout(layout.id) },
    `${layout.id} [${layout.shape.join(", ")}]${isMemory(layout) ? " shared memory" : ""}`, element("small", {}, named.slice(0, 3).join(", "))));
}
(data.accesses ?? []).forEach((access, number) => {
  const conflicts = access.wavefronts - access.least;
  find("access-list").append(element("button", { onclick: () => showAccess(number) },
    `${access.kind} ${access.value} ${access.registers} ${access.kind === "store" ? "→" : "←"} ${access.memory}`,
    element("small", { class: conflicts ? "bad" : "" }, conflicts ? `${conflicts} conflicts` : "no conflicts")));
});

// Buffers and barriers: who writes and reads, who signals and waits.
const allocations = data.memory ?? [];
const partition = (use) => data.partitions?.[use.partition]?.name;
function usesOf(allocation, actions) {
  const found = allocation.uses.filter((use) => actions.includes(use.action));
  return found.map((use) => {
    const part = element("div", { "data-line": use.line }, use.line ? `${use.op} in line ${use.line}` : use.op, partition(use) ? ` (${partition(use)})` : "", use.slot ? `, slot ${use.slot}` : "", use.amount ? `: ${use.amount}` : "");
    link(part, use.line);
    return part;
  });
}
for (const allocation of allocations) {
  const isBarrier = allocation.kind === "mbarrier";
  const layout = allocation.layout ? [", ", element("a", { href: "#", onclick: (event) => { event.preventDefault(); showLayout(allocation.layout); } }, allocation.layout)] : [];
  const size = isBarrier ? `${allocation.slots} × mbarrier` : `${allocation.slots} × ${allocation.tile ?? allocation.kind}`;
  const offset = allocation.offset == null ? "" : `${allocation.kind === "tensor memory" ? "column" : "byte"} ${allocation.offset}`;
  find("barriers").append(element("div", { class: "allocation", "data-name": allocation.name, "data-kind": allocation.kind },
    element("b", {}, allocation.name || allocation.kind), element("span", {}, size, ...layout, offset ? `, at ${offset}` : ""),
    element("div", {}, element("small", {}, isBarrier ? "signals" : "writes"), ...usesOf(allocation, isBarrier ? ["init", "arrive", "bytes"] : ["write"])),
    element("div", {}, element("small", {}, isBarrier ? "waits" : "reads"), ...usesOf(allocation, isBarrier ? ["wait"] : ["read"]))));
}
if (!allocations.length) find("barriers").append(element("p", {}, "The kernel has no shared memory."));
if (data.partitions?.length) find("barriers").prepend(element("p", { id: "partitions" }, "Partitions: ", data.partitions.map(({ name, first, warps }) => `${name}: ${warps === 1 ? `warp ${first}` : `warps ${first} to ${first + warps - 1}`}`).join("; ")));

const tabs = { decisions: `decisions (${rows.length})`, layouts: `layouts (${layouts.size})`, barriers: `buffers and barriers (${allocations.length})`, memory: `accesses to shared memory (${data.accesses?.length ?? 0})` };
function select(tab) {
  for (const name of Object.keys(tabs)) {
    find(name).hidden = name !== tab;
    find(`tab-${name}`).setAttribute("aria-selected", String(name === tab));
  }
}
const first = { layouts: () => layouts.size && showLayout(shown ?? [...layouts.keys()][0]), memory: () => data.accesses?.length && showAccess(banks ?? 0) };
for (const [name, title] of Object.entries(tabs)) {
  find("tabs").append(element("button", { id: `tab-${name}`, role: "tab", onclick: () => { select(name); first[name]?.(); } }, title));
}
select("decisions");

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  if (shown && !find("layouts").hidden) showLayout(shown);
  if (banks != null && !find("memory").hidden) showAccess(banks);
}
find("theme").addEventListener("click", () => setTheme(dark() ? "light" : "dark"));
document.addEventListener("keydown", (event) => { if (event.key === "d" && !event.ctrlKey && !event.metaKey) setTheme(dark() ? "light" : "dark"); });
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const line = Number(new URLSearchParams(location.hash.slice(1)).get("line"));
if (byLine.has(line)) pin(line);
// The data that the page draws, for tests.
globalThis.explained = { data, owners, layouts, wavefronts: (access) => wavefronts(access, layouts) };
