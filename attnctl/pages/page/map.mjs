// The map: every head of every layer in little, named by what it does, to sort and to choose from.

import { paint } from "./colours.mjs";
import { make } from "./elements.mjs";
import { forPeople } from "./numbers.mjs";
import { WEIGHTS } from "./trace.mjs";

const SIDE = { alone: 60, grid: 24 }; // pixels of a head, of one layer and of many
const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };
const FEW = 5; // heads that need no sorting
const ENOUGH = 0.005; // a share that is shown
const EFFECT = "effect";
const [RISES, FALLS] = ["38 103 178", "196 106 22"]; // of logit A − logit B: blue and orange

const CHOOSE = "Choose the head to compare it with.";

const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

export class HeadMap {
  /** `act(trace, head, how)` is called for a head that is pointed at, left or chosen. */
  constructor(element, { traces, look, words }, blocks, act) {
    Object.assign(this, { element, blocks, act, words });
    const heads = traces.flatMap(({ view }, trace) => {
      const step = view.steps.find(({ name }) => name === WEIGHTS);
      const count = step && step.shape.length > 2 ? step.shape.at(-3) : 0;
      return Array.from({ length: count }, (_, head) => ({
        trace,
        head,
        step,
        layer: view.layer,
        about: view.heads?.[head],
      }));
    });
    this.heads = heads.filter(({ head }) => look.heads?.includes(head) ?? true);
    this.layers = new Set(traces.map(({ view }) => view.layer)).size;
  }

  /** Every head of the page where its traces are layers, else those of one trace; whether they are others. */
  open(trace, layered) {
    const shown = layered ? this.heads : this.heads.filter((each) => each.trace === trace);
    if (this.shown?.length === shown.length && this.shown[0] === shown[0]) return false;
    this.shown = shown;
    this.layered = layered && this.layers > 1;
    this.element.hidden = shown.length < 2;
    this.build();
    return true;
  }

  build() {
    this.most = Math.max(0, ...this.shown.map(({ about }) => Math.abs(about?.effect ?? 0)));
    const kinds = [...new Set(this.shown.flatMap(({ about }) => Object.keys(about?.shares ?? {})))];
    this.sorting = make(
      "select",
      { id: "sorting" },
      make("option", { value: "" }, this.layered ? "by layer" : "by number"),
      ...kinds.map((kind) => make("option", { value: kind }, `most ${kind}`)),
      ...(this.most ? [make("option", { value: EFFECT }, "largest effect")] : []),
    );
    this.sorting.addEventListener("change", () => this.arrange());
    this.filter = make(
      "select",
      { id: "filter" },
      make("option", { value: "" }, "all heads"),
      ...[...new Set(this.shown.map(({ about }) => about?.name).filter(Boolean))].map((name) =>
        make("option", { value: name }, `${name} heads`),
      ),
    );
    this.filter.addEventListener("change", () => this.arrange());
    this.grid = make("div", { role: "radiogroup", "aria-label": "head" });
    this.grid.addEventListener("pointerleave", () => this.act(undefined, undefined, "leave"));
    this.grid.addEventListener("keydown", (event) => this.pressed(event));
    this.readout = make("p", { class: "readout" });
    const label = (text, control) => make("label", {}, make("span", { class: "unseen" }, text), control);
    const controls = make(
      "div",
      { class: "controls" },
      label("sort", this.sorting),
      label("show", this.filter),
    );
    controls.hidden = !kinds.length || this.shown.length < FEW;
    const title = this.layered ? "Layers and heads" : "Heads";
    this.compare = make(
      "button",
      { type: "button", "aria-pressed": "false", title: "Shift + click on a head does it, too" },
      "Compare",
    );
    this.compare.addEventListener("click", () => this.choose());
    const heading = make("div", { class: "heading" }, make("h2", {}, title), this.compare);
    this.element.replaceChildren(heading, controls, this.grid, this.readout);
    this.buttons = this.shown.map((each) => this.button(each));
    this.arrange();
  }

  /** Wait for the head that is compared with the one that is open; or end comparing them. */
  choose() {
    if (this.also !== undefined) return this.act(this.current.trace, this.also, "also");
    this.choosing = !this.choosing;
    this.compare.ariaPressed = String(this.choosing);
    this.readout.textContent = this.choosing ? CHOOSE : this.told(this.current);
  }

  button(each) {
    const side = this.layered ? SIDE.grid : SIDE.alone;
    const canvas = make("canvas");
    [canvas.style.width, canvas.style.height] = [`${side}px`, `${side}px`];
    const button = make(
      "button",
      {
        type: "button",
        role: "radio",
        "aria-checked": "false",
        "aria-label": this.told(each),
        tabindex: -1,
      },
      canvas,
      make("span", { class: "which" }, this.which(each)),
      make("span", { class: "does" }, each.about?.name ?? ""),
    );
    if (this.most) {
      const share = (each.about?.effect ?? 0) / this.most;
      button.style.borderBottom = `6px solid rgb(${share < 0 ? FALLS : RISES} / ${Math.abs(share)})`;
    }
    button.addEventListener("pointerenter", () => {
      this.readout.textContent = this.told(each);
      this.act(each.trace, each.head, "look");
    });
    button.addEventListener("click", ({ shiftKey }) => {
      const how = shiftKey || this.choosing ? "also" : "lock";
      this.choosing = false;
      this.act(each.trace, each.head, how);
    });
    Object.assign(each, { button, canvas });
    return button;
  }

  which({ layer, head }) {
    return this.layered ? `L${layer}H${head}` : `${head}`;
  }

  /** What is said of a head: where it is, what it does to the next token, and what it attends to most. */
  told({ layer, head, about }) {
    const where = layer === undefined || layer === null ? `head ${head}` : `layer ${layer}, head ${head}`;
    const shares = Object.entries(about?.shares ?? {})
      .filter(([, share]) => share >= ENOUGH)
      .sort(([, a], [, b]) => b - a)
      .slice(0, 2)
      .map(([kind, share]) => `${percent(share)} to ${this.words.kinds[kind]}`);
    const effect =
      about?.effect === undefined ? [] : [`effect ${forPeople(about.effect).replace("-", "−")}`];
    const said = [...effect, ...shares].join(", ");
    return said ? `${where}: ${said}` : where;
  }

  /** Sort and filter: by place a grid, by a share a list from the largest. */
  arrange() {
    const [by, only] = [this.sorting.value, this.filter.value];
    const share = ({ about }) => (by === EFFECT ? Math.abs(about?.effect) : (about?.shares[by] ?? 0));
    const order = by ? [...this.shown].sort((a, b) => share(b) - share(a)) : this.shown;
    const grid = this.layered && !by && !only;
    this.grid.style.setProperty("--across", Math.min(3, this.shown.length));
    this.grid.className = grid ? "layers" : this.layered ? "list small" : "list";
    this.order = order.filter(({ about }) => !only || about?.name === only);
    for (const { button, head } of this.shown) button.style.gridColumn = grid ? head + 2 : "";
    if (grid) this.grid.replaceChildren(...this.rows());
    else this.grid.replaceChildren(...this.order.map(({ button }) => button));
  }

  *rows() {
    const most = Math.max(...this.shown.map(({ head }) => head)) + 1;
    this.grid.style.setProperty("--heads", most);
    yield make("span", { "aria-hidden": "true" });
    for (let head = 0; head < most; head++)
      yield make("span", { class: "number", "aria-hidden": "true" }, `${head}`);
    let last;
    for (const { layer, button } of this.shown) {
      if (layer !== last) {
        const name = make("span", { class: "number row", "aria-hidden": "true" }, `${layer}`);
        name.style.gridColumn = 1;
        yield name;
      }
      last = layer;
      yield button;
    }
  }

  pressed(event) {
    const at = this.order.findIndex(({ button }) => button === event.target);
    const across =
      this.grid.className === "layers" ? Number(this.grid.style.getPropertyValue("--heads")) : 1;
    const by = ARROWS[event.key] ?? { ArrowUp: -across, ArrowDown: across }[event.key];
    const next = this.order[at + by];
    if (by === undefined || at < 0) return;
    event.preventDefault();
    if (!next) return;
    next.button.focus();
    if (!this.choosing) this.act(next.trace, next.head, "lock");
  }

  /** Draw every head, a layer at a time, so that the page answers in between. */
  async draw(shades) {
    const scale = devicePixelRatio || 1;
    for (const { trace, step } of new Map(this.shown.map((each) => [each.trace, each])).values()) {
      const array = await this.blocks.get(step.block);
      const [rows, columns] = step.shape.slice(-2);
      for (const each of this.shown.filter((one) => one.trace === trace)) {
        const start = array.offset([...step.shape.slice(0, -3).map(() => 0), each.head, 0, 0]);
        const side = Math.round((this.layered ? SIDE.grid : SIDE.alone) * scale);
        const value = (row, column) => array.values[start + row * columns + column];
        paint(each.canvas, side, side, { rows, columns, value, shades });
      }
      await new Promise((done) => setTimeout(done));
    }
  }

  show(trace, head, also) {
    if (!this.shown) return;
    this.also = also === head ? undefined : also;
    this.compare.ariaPressed = String(this.choosing || this.also !== undefined);
    for (const each of this.shown) {
      const is = each.trace === trace && each.head === head;
      each.button.ariaChecked = String(is);
      each.button.tabIndex = is ? 0 : -1;
      each.button.classList.toggle("also", each.trace === trace && each.head === also && !is);
      if (is) this.current = each;
      if (is && !this.choosing) this.readout.textContent = this.told(each);
    }
  }
}
