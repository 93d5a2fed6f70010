// The layouts of a kernel on a GPU: every value of the GPU stage with the layout that it has, and accesses to shared memory.

import { drawBanks, drawLayout, isMemory, valuesByLayout } from "./layouts.js";
import { find, h } from "./util.js";

/** The dialog. It requests layouts when it is opened, and when another GPU is chosen. */
export class Layouts {
  constructor(ask) {
    this.ask = ask;
    this.launch = 0;
    find("layout-target").addEventListener("change", () => this.show(this.launch));
  }

  async open(launch) {
    find("layouts").showModal();
    await this.show(launch);
  }

  async show(launch) {
    this.launch = launch;
    const found = await this.ask("layouts", { launch, target: find("layout-target").value });
    // A simulated launch has the layouts of the code that ran.
    find("layout-target").closest("label").hidden = (await this.ask("launch", { launch }))?.device != null;
    const [list, box] = [find("layout-list"), find("layout")];
    list.replaceChildren();
    box.replaceChildren();
    if (!found || found.error) {
      find("layout-note").textContent = found ? found.error : "there are none";
    } else {
      this.list(found);
    }
    document.body.dataset.layouts = `${launch}:${find("layout-target").value}`;
  }

  list(found) {
    const dark = document.documentElement.dataset.theme === "dark";
    const byId = new Map(found.layouts.map((layout) => [layout.id, layout]));
    const values = valuesByLayout(found.lines);
    const bits = new Map(found.accesses.map((access) => [access.memory, access.bits]));
    const list = find("layout-list"), box = find("layout");
    find("layout-note").textContent = `${found.layouts.length} layouts, ${found.accesses.length} accesses to shared memory, ${found.warps} warps`;
    const entry = (attributes, draw, ...content) => {
      const button = h("button", { ...attributes, "aria-pressed": "false", onclick: () => {
        for (const other of list.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
        draw();
      } }, ...content);
      list.append(button);
    };
    for (const layout of found.layouts) {
      const named = values.get(layout.id) ?? [];
      entry({ "data-layout": layout.id, title: named.join("\n") }, () => drawLayout(box, layout, { bits: bits.get(layout.id) ?? 32, dark }),
        `${layout.id} [${layout.shape.join(", ")}]${isMemory(layout) ? " shared memory" : ""}`, h("small", {}, named.slice(0, 3).join(", ")));
    }
    found.accesses.forEach((access, number) => {
      const conflicts = access.wavefronts - access.least;
      entry({ "data-access": number }, () => drawBanks(box, access, byId, { dark }),
        `${access.kind} ${access.value} ${access.registers} ${access.kind === "store" ? "→" : "←"} ${access.memory}`,
        h("small", {}, conflicts ? `${conflicts} passes for bank conflicts` : "no bank conflicts"));
    });
    list.firstElementChild?.click();
  }
}
