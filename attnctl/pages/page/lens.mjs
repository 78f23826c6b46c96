// The lens: one cell of one trace, locked or looked at, and every view of it.

import { addressOf, parsed, placesOf } from "./address.mjs";
import { paint, Shades } from "./colours.mjs";
import { make } from "./elements.mjs";
import { Hero } from "./hero.mjs";
import { HeadMap } from "./map.mjs";
import { matrixFor, sideOf } from "./matrix.mjs";
import { everyDigit, inColumns } from "./numbers.mjs";
import { Proof } from "./proof.mjs";
import { copy, download, svg, tsv } from "./save.mjs";
import { opened, WEIGHTS } from "./trace.mjs";
import { Way } from "./way.mjs";

const MANY = 48; // keys from which weights are shaded by logarithm at first
const LEAST = { width: 240, height: 240 }; // pixels that a matrix is given
const BELOW = 58; // pixels that stay free below it
const GAP = 20; // pixels between two
const MARGIN = 150; // pixels beside the cells of one: its labels, and what is between two
const NARROW = { alone: 0.36, below: 0.13 }; // of the height of a telephone, for a matrix; below a finding

const TOGGLES = {
  log: ["logarithm", "small numbers are told apart"],
  first: ["without first", "the first key, which often takes most, is left out"],
  row: ["by row", "each row is shaded by its own largest"],
  weighted: [
    "value-weighted",
    "how much each key's value adds to the output, ‖A·V·W_O‖ (Kobayashi et al. 2020)",
  ],
  within: ["A → A", "curves to the word's own sentence alone"],
  across: ["A → B", "curves to the other sentence alone"],
};

export class Lens {
  constructor(page, blocks, by) {
    Object.assign(this, { page, blocks, by });
    this.traces = page.traces;
    this.toggles = new Set();
    this.known = new Map();
    this.depth = 0;
    this.layered = new Set(this.traces.map(({ view }) => view.layer ?? null)).size === this.traces.length;
    this.hero = new Hero(by("hero"), (side, at, how) => this.word(side, at, how));
    this.map = new HeadMap(by("map"), page, blocks, (...head) => this.head(...head));
    this.way = new Way(by("way"), (name) => this.lock({ step: name }));
    this.proof = new Proof(
      by("proof"),
      ({ step, cell }) =>
        this.lock({ step, places: this.opened.places(this.opened.step(step), cell, this.locked.places) }),
      (text, words) => copy(text).then(() => this.say(words)),
    );
    addEventListener("hashchange", () => this.travel());
    addEventListener("resize", () => {
      clearTimeout(this.resized);
      this.resized = setTimeout(() => this.redraw(), 120);
    });
  }

  /** Open the cell that the address names, or the one that says most. */
  async start() {
    if (this.by("next")) this.opensWith = await this.firstCommand();
    if (!(await this.travel())) {
      await this.open(this.page.open ?? 0);
      const { cell, heads } = this.page.look;
      const step = cell && this.opened.step(cell.step);
      const asked = step && { step: cell.step, places: this.opened.places(step, cell.at, {}) };
      this.locked = { trace: this.at, ...(asked || this.opened.opening(heads)) };
      this.toggles = this.usual();
      this.render(this.locked);
      this.remember("replace");
    }
    await this.map.draw(this.mapShades());
  }

  /** What explains the number that a finding opens with, wherever the address leads. */
  async firstCommand() {
    await this.open(this.page.open);
    const { step: name, places } = this.opened.opening();
    const step = this.opened.step(name);
    return step && this.command(step, this.opened.cell(step, places));
  }

  usual() {
    const { look } = this.page;
    const many = (this.opened.weights?.shape.at(-1) ?? 0) > MANY;
    return new Set([...(look.log || many ? ["log"] : []), ...(look.first ? ["first"] : [])]);
  }

  /** Make the numbers of a trace those that are looked at; false where others were asked for meanwhile. */
  async open(number) {
    if (!this.known.has(number))
      this.known.set(number, opened(this.traces[number], this.blocks, this.page.words));
    this.turn = (this.turn ?? 0) + 1;
    const { turn } = this;
    const found = await this.known.get(number);
    if (turn !== this.turn) return false; // another was asked for since
    if (this.opened === found) return true;
    [this.opened, this.at] = [found, number];
    const { view } = this.traces[number];
    this.by("facts").textContent = [this.traces.length > 1 ? view.name : "", ...view.facts]
      .filter(Boolean)
      .join(" · ");
    this.by("notes").replaceChildren(...view.notes.map((note) => make("li", {}, note)));
    this.hero.open(found);
    this.way.open(found);
    if (this.map.open(number, this.layered) && this.locked) this.map.draw(this.mapShades());
    for (const [at, button] of [...this.by("traces").children].entries())
      button.ariaPressed = String(at === number);
    this.drawn = undefined;
    return true;
  }

  /** Go where the address says; whether it says anything. */
  async travel() {
    const wanted = parsed(this.traces, location.hash);
    if (!wanted) return false;
    if (this.locked && location.hash === this.address) return true;
    if (!(await this.open(wanted.trace))) return true;
    const places = placesOf(wanted, this.opened);
    if (!places) return false;
    if (!this.locked) this.toggles = this.usual();
    const heads = this.opened.weights?.shape.at(-3) ?? 1;
    this.also = wanted.other < heads ? wanted.other : undefined;
    this.locked = { trace: wanted.trace, step: wanted.step, places: { ...this.locked?.places, ...places } };
    const inside = this.by("matrix").contains(document.activeElement);
    this.render(this.locked);
    if (inside) this.focus();
    this.address = location.hash;
    return true;
  }

  /** Write the address of what is locked. */
  remember(how) {
    const { trace, step, places } = this.locked;
    const cell = this.opened.cell(this.opened.step(step), places);
    this.address = addressOf(this.traces, { trace, step, cell, other: this.also }, this.opened);
    if (this.address === location.hash) return;
    if (how === "push") this.depth++;
    try {
      history[how === "push" ? "pushState" : "replaceState"](null, "", this.address);
    } catch {} // a frame without an address of its own
  }

  /** Stay on a cell: other places, another step, another trace. */
  async lock(change, how = "push") {
    const next = { ...this.locked, ...change };
    if (!(await this.open(next.trace))) return;
    if (!this.opened.step(next.step)) Object.assign(next, this.opened.opening()); // this trace has no such step
    this.locked = next;
    this.render(next);
    this.remember(how);
    const cell = this.opened.cell(this.opened.step(next.step), next.places);
    const { name, value } = this.opened.explained.explain(next.step, cell);
    this.say(`${name} = ${inColumns(value)}`);
  }

  say(text) {
    this.by("said").textContent = text;
  }

  // --- what a reader does ---

  /** A word of the sentence was pointed at, left or chosen. */
  word(side, at, how) {
    if (how === "leave") return this.render(this.locked);
    const { places } = this.locked;
    const next = side === "query" ? { ...places, query: at } : { ...places, key: at };
    if (side === "query") next.key = this.strongest(next);
    const axes = this.opened.step(this.locked.step).axes;
    const step = axes.includes("query") && axes.includes("key") ? this.locked.step : WEIGHTS;
    if (how === "lock") this.lock({ step, places: next });
    else this.render({ ...this.locked, step, places: next });
  }

  /** The key that a query looks at most, itself and the first left aside where others are seen. */
  strongest(places) {
    const row = this.opened.row(places);
    const first = this.toggles.has("first") ? 1 : 0;
    return row.reduce((best, value, at) => (at >= first && value > row[best] ? at : best), first);
  }

  async head(trace, head, how) {
    if (how === "leave") {
      return (await this.open(this.locked.trace)) && this.render(this.locked);
    }
    if (how === "also") {
      if (trace !== this.locked.trace) return this.say("Heads of one layer are compared.");
      this.also = this.also === head || head === this.locked.places.head ? undefined : head;
      this.render(this.locked);
      return this.remember("push");
    }
    const places = { ...this.locked.places, head };
    if (how === "lock") return this.lock({ trace, places });
    return (await this.open(trace)) && this.render({ ...this.locked, places });
  }

  cellActed(step, lead, [row, column], how) {
    if (how === "leave") return this.render(this.locked);
    if (how === "back") return this.depth > 0 ? history.back() : undefined;
    const cell = [...lead, row, column + this.skipped].slice(-step.shape.length);
    const places = this.opened.places(step, step.shape.length ? cell : [], this.locked.places);
    if (how === "follow") return this.follow(step, cell);
    if (how === "look") return this.render({ ...this.locked, step: step.name, places });
    return this.lock({ step: step.name, places }, how === "move" ? "replace" : "push");
  }

  /** To the first cell that a cell came from. */
  async follow(step, cell) {
    const [operand] = this.opened.explained.explain(step.name, cell).operands;
    if (!operand || !this.opened.step(operand.step)) return;
    await this.lock({
      step: operand.step,
      places: this.opened.places(this.opened.step(operand.step), operand.cell, this.locked.places),
    });
    this.focus();
  }

  /** Let the keyboard stand on the cell of the first matrix. */
  focus() {
    const [panel] = this.panels;
    panel?.matrix.put(panel.matrix.place);
  }

  // --- what is shown ---

  redraw(toPaper = false) {
    this.drawn = undefined;
    if (this.locked) this.render(this.locked);
    if (toPaper) for (const { matrix } of this.panels) matrix.flatten?.();
    this.map.draw(this.mapShades());
  }

  mapShades() {
    return new Shades(1, { log: this.toggles.has("log") });
  }

  render({ step: name, places }) {
    const { opened } = this;
    const step = opened.step(name);
    if (!step) return;
    const cell = opened.cell(step, places);
    const lead = cell.slice(0, -2);
    const key = `${this.at} ${name} ${[...this.toggles]} ${this.also} ${this.mix}`;
    if (key !== this.drawn || !this.panels.some((panel) => String(panel.lead) === String(lead))) {
      this.drawn = key;
      this.centre(step, lead);
      this.way.show(name);
    }
    this.map.show(this.at, places.head ?? 0, this.also);
    this.heroShow(step, places, cell);
    const place = [cell.at(-2) ?? 0, (cell.at(-1) ?? 0) - this.skipped];
    if (step.shape.length === 1) place[0] = 0;
    for (const { matrix } of this.panels) {
      matrix.clear();
      if (place[1] < 0) continue;
      matrix.stand(place);
      matrix.mark(place, "here");
    }
    if (!step.shape.every(Boolean)) return this.by("proof").replaceChildren();
    const command = this.command(step, cell);
    const norm = this.weighs(step) ? Number(opened.norms.at(cell.toSpliced(-2, 1))) : undefined;
    this.proof.show({ opened, step, cell, where: this.where(places), command, norm });
    const [row, column] = cell
      .slice(-2)
      .map((_, i) => opened.place(step, cell, Math.max(0, cell.length - 2) + i));
    const sides = column === undefined ? (row ?? name) : `${row} → ${column}`;
    document.title = [sides, this.traces[this.at].view.called].filter(Boolean).join(" · ");
  }

  heroShow(step, places, cell) {
    const { opened } = this;
    if (!opened.weights) return;
    const [query, key] = opened.cell(opened.weights, places).slice(-2);
    const both = step.axes.includes("query") && step.axes.includes("key");
    const looked = (head) => this.looked(query, this.mixed({ ...places, head }));
    const weights = looked(places.head);
    const also = this.also === undefined || this.also === places.head ? undefined : looked(this.also);
    const shades = this.weightShades ?? new Shades(1);
    const label = this.where(places);
    this.hero.show({ query, key: both ? key : undefined, weights, also, shades, label, cell });
  }

  /** What of a row of weights is drawn: without the first key, of one sentence of two, if so asked. */
  looked(query, weights) {
    const parts = this.opened.sentences();
    const own = (key) => parts[key] === parts[query];
    return weights.map((weight, key) => {
      if (this.toggles.has("first") && key === 0) return 0;
      if (this.toggles.has("within") && !own(key)) return 0;
      return this.toggles.has("across") && own(key) ? 0 : weight;
    });
  }

  /** Layer and head, in words. */
  where(places) {
    const { layer } = this.traces[this.at].view;
    const heads = this.opened.weights?.shape.at(-3) ?? 1;
    const words = [];
    if (this.traces.length > 1 && !this.layered) words.push(this.traces[this.at].view.name);
    if (layer !== undefined && layer !== null) words.push(`layer ${layer}`);
    if (places.batch !== undefined) words.push(`batch ${places.batch}`);
    if (heads > 1) words.push(`head ${places.head ?? 0}`);
    return words.join(", ");
  }

  /** What explains a cell in a shell; nothing where the page does not have its arithmetic. */
  command(step, cell) {
    const held = this.opened.trace.blocks[step.name] !== undefined || step.block === null;
    if (!held || step.why) return "";
    const file = decodeURIComponent(location.pathname.split("/").pop() || "") || "FILE.html";
    const one = this.traces.length > 1 ? `${file}[${this.at}]` : file;
    const quoted = (text) => (/^[\w./:=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
    return `attnctl explain ${quoted(one)} ${quoted(this.opened.explained.spelled(step.name, cell))}`;
  }

  /** The matrices of a step in the middle, under its name and what may be done to them. */
  centre(step, lead) {
    const element = this.by("matrix");
    if (!step.shape.every(Boolean)) {
      this.panels = [];
      this.skipped = 0;
      element.replaceChildren(this.heading(step), make("p", {}, "no numbers"));
      return;
    }
    const every = this.compared(step, lead);
    const narrow = matchMedia("(max-width: 700px)").matches;
    const parts = narrow ? [every[this.faceOf(every)]] : every;
    const many = parts.length;
    const holder = make("div", { class: "panels" });
    element.replaceChildren(
      this.heading(step),
      ...(narrow && every.length > 1 ? [this.faces(every)] : []),
      this.tools(step, every),
      holder,
      this.legend(step, parts),
    );
    const across = many;
    const high = innerHeight * (this.by("finding") ? NARROW.below : NARROW.alone);
    holder.style.setProperty("--panels", many);
    const below = () =>
      Math.max(LEAST.height, innerHeight - holder.getBoundingClientRect().top - scrollY - BELOW);
    element.parentElement.style.setProperty("--matrix", this.widest(step, many, below()));
    const room = {
      width: Math.max(LEAST.width / across, holder.clientWidth / across - GAP),
      height: narrow ? high : below(),
    };
    this.panels = parts.map((part) => {
      const matrix = matrixFor(part, (_of, place, how) => this.cellActed(step, part.lead, place, how));
      const scroll = make("div", { class: "scroll" }, matrix.build(room));
      holder.append(make("figure", {}, ...(part.name ? [make("figcaption", {}, part.name)] : []), scroll));
      return { matrix, part, lead: part.lead };
    });
  }

  /** Which of several panels a telephone shows: the one that was chosen, else the last of a difference. */
  faceOf(panels) {
    const usual = this.opened.view.panels?.delta ? panels.length - 1 : 0;
    return Math.min(this.face ?? usual, panels.length - 1);
  }

  /** A button for each panel, where there is room for one. */
  faces(panels) {
    const shown = this.faceOf(panels);
    const buttons = panels.map(({ name }, at) => {
      const button = make("button", { type: "button", "aria-pressed": String(at === shown) }, name);
      button.addEventListener("click", () => {
        this.face = at;
        this.redraw();
        document.querySelector(".faces [aria-pressed=true]")?.focus();
      });
      return button;
    });
    return make("div", { class: "faces", role: "group", "aria-label": "matrix" }, ...buttons);
  }

  /** How wide the matrices of a step get in this height: what is left of the page is the proof's. */
  widest(step, many, height) {
    const wide = [step, this.opened.weights ?? step].map(({ shape }) => {
      const [rows, columns] = [1, 1, ...shape].slice(-2);
      return columns * sideOf(rows, columns, height) + MARGIN;
    });
    return `${many * Math.ceil(Math.max(...wide))}px`;
  }

  /** Whether the matrix shows weights times what their values add to the output. */
  weighs(step) {
    const { weights, norms } = this.opened;
    return Boolean(step === weights && norms && this.toggles.has("weighted"));
  }

  /** The matrices of one head, and those of the head that it is compared with. */
  compared(step, lead) {
    const own = this.parts(step, lead);
    const axis = step.axes.indexOf("head");
    const many = step.shape[axis];
    const head = axis < lead.length && many === this.opened.weights?.shape.at(-3) ? this.also : undefined;
    if (own.length > 1 || head === undefined || head >= many || head === lead[axis]) return own;
    const other = this.parts(step, lead.toSpliced(axis, 1, head));
    return [...own, ...other].map((part, id) => ({ ...part, id, name: `head ${part.lead[axis]}` }));
  }

  /** The matrix of a step, and beside it what a finding holds against it. */
  parts(step, lead) {
    const { opened } = this;
    const whole = opened.matrix(step, lead);
    const square = step.axes.at(-1) === "key" && step.axes.at(-2) === "query";
    this.skipped = square && this.toggles.has("first") && whole.columns > 1 ? 1 : 0;
    const skip = this.skipped;
    const at = (get) => (row, column) => get(row, column + skip);
    const weighted = this.weighs(step);
    const wrong = (row, column) =>
      !opened.view.panels?.delta && opened.isWrong(step, whole.cell(row, column));
    const own = weighted
      ? (row, column) =>
          whole.value(row, column) * Number(opened.norms.at(whole.cell(row, column).toSpliced(-2, 1)))
      : whole.value;
    const part = {
      ...whole,
      id: 0,
      step,
      lead,
      square,
      rules: step.hides?.names ?? [],
      edges: step.axes.at(-1) === "key" ? opened.view.chunks.map((key) => key - skip) : [],
      columns: whole.columns - skip,
      columnNames: whole.columnNames.slice(skip),
      label: this.labelled(step, lead),
      value: at(own),
      hiddenBy: at((row, column) => (wrong(row, column) ? "" : whole.hiddenBy(row, column))),
      wrong: at(wrong),
    };
    const beside = this.beside(step, whole, part, at);
    const alone = this.shadesOf(step, part, weighted);
    const shades = step === opened.weights ? alone : this.sharedBy(beside, alone);
    if (step === opened.weights) this.weightShades = weighted ? undefined : shades;
    return beside.map((each, id) => this.shadedBy(each.shades ?? shades, { ...each, id }));
  }

  /** The panels: the numbers alone, or A, B and B − A, or what was found and what was expected. */
  beside(step, whole, part, at) {
    const { opened } = this;
    const { panels } = opened.view;
    const mark = opened.mark(step);
    if (!panels || !mark || mark.other === null) return [part];
    const otherAt = (row, column) => opened.other(step, whole.cell(row, column)) ?? Number.NaN;
    const own = { ...part, name: panels.own };
    const mixed = panels.delta ? this.mix : undefined;
    const other = {
      ...part,
      name: panels.other,
      label: `${part.label}, ${panels.other}`,
      value: at(otherAt),
      hiddenBy: panels.delta ? () => "" : at(whole.hiddenBy),
      wrong: () => false,
    };
    const both = panels.own === "B" ? [other, own] : [own, other];
    if (!panels.delta) return both;
    const [a, b] = both;
    if (mixed !== undefined) {
      const between = (row, column) => blend(a.value(row, column), b.value(row, column), mixed);
      const name = `A → B: ${Math.round(100 * mixed)} %`;
      return [{ ...a, name, label: `${part.label}, between A and B`, value: between, hiddenBy: () => "" }];
    }
    const value = (row, column) => b.value(row, column) - a.value(row, column);
    const label = `${part.label}, ${panels.delta}`;
    const shades = Shades.of(everyOf(part.rows, part.columns, value), { signed: true });
    return [...both, { ...other, name: panels.delta, label, value, shades }];
  }

  /** One scale for all heads: from 0 to 1 for weights, else to the largest of the step. */
  shadesOf(step, part, weighted) {
    const log = this.toggles.has("log");
    if (step === this.opened.weights && !weighted && !this.skipped) return new Shades(1, { log });
    if (weighted || this.skipped || step.block === null)
      return Shades.of(everyOf(part.rows, part.columns, part.value), { log });
    return Shades.of(this.opened.array(step.name).values, { log });
  }

  /** One scale for panels that stand side by side: that of the step, or as far as the other one goes. */
  sharedBy(panels, shades) {
    const others = panels.slice(1).filter((each) => !each.shades);
    const values = others.flatMap((each) => everyOf(each.rows, each.columns, each.value));
    const { most, signed } = Shades.of(values);
    if (!others.length || (most <= shades.most && signed === shades.signed)) return shades;
    return new Shades(Math.max(most, shades.most), { signed: signed || shades.signed, log: shades.log });
  }

  shadedBy(shades, part) {
    const text = (row, column) =>
      inColumns(part.value(row, column), this.page.look.precision).replace("-", "−");
    if (!this.toggles.has("row")) return { ...part, shades, text, shaded: part.value };
    const most = Array.from({ length: part.rows }, (_, row) =>
      everyOf(1, part.columns, (_, column) => part.value(row, column))
        .filter(Number.isFinite)
        .reduce((largest, value) => Math.max(largest, Math.abs(value)), 0),
    );
    const shaded = (row, column) => part.value(row, column) / (most[row] || 1);
    return { ...part, text, shaded, shades: new Shades(1, { signed: shades.signed, log: shades.log }) };
  }

  labelled(step, lead) {
    return [step.name, ...lead.map((at, axis) => `${step.axes[axis]} ${at}`)].join(", ");
  }

  heading(step) {
    const size = step.shape.length
      ? `${step.shape.join(" × ")} (${step.axes.join(", ")})`
      : "a single number";
    const facts = [size, step.dtype].filter(Boolean).join(" · ");
    return make(
      "div",
      { class: "heading" },
      make("h2", {}, make("code", {}, step.name), " ", make("span", { class: "formula" }, step.title)),
      make("p", { class: "facts" }, facts),
    );
  }

  tools(step, parts) {
    const { opened } = this;
    const keyed = step.axes.at(-1) === "key" && step.axes.at(-2) === "query";
    const offered = {
      log: !parts[0].shades.signed,
      first: keyed,
      row: true,
      weighted: step === opened.weights && Boolean(opened.norms),
      within: opened.sentences().at(-1) > 0,
      across: opened.sentences().at(-1) > 0,
    };
    const buttons = Object.entries(TOGGLES)
      .filter(([name]) => offered[name])
      .map(([name, [text, title]]) => {
        const pressed = String(this.toggles.has(name));
        const button = make(
          "button",
          { type: "button", "aria-pressed": pressed, title, "data-toggle": name },
          text,
        );
        button.addEventListener("click", () => this.toggle(name));
        return button;
      });
    const places = step.axes.slice(0, -2).map((axis, at) => this.places(step, axis, at));
    if (opened.view.panels?.delta && opened.mark(step)) places.push(this.slider());
    const save = make("button", { type: "button" }, "Save SVG");
    save.addEventListener("click", () => this.save());
    const copying = make("button", { type: "button", title: "all digits" }, "Copy as TSV");
    copying.addEventListener("click", async () => {
      await copy(this.panels.map(({ part }) => tsv(part)).join("\n"));
      this.say("Copied, with all digits.");
    });
    return make(
      "div",
      { class: "tools" },
      ...places.flat(),
      ...buttons,
      make("span", { class: "gap" }),
      save,
      copying,
    );
  }

  /** What goes from the numbers of A to those of B: [label], and a button back to both side by side. */
  slider() {
    const at = this.mix ?? (this.opened.view.panels.own === "A" ? 0 : 1);
    const input = make("input", {
      type: "range",
      min: 0,
      max: 100,
      value: Math.round(100 * at),
      id: "mix",
    });
    input.addEventListener("input", () => {
      this.mix = Number(input.value) / 100;
      this.redraw();
      document.getElementById("mix")?.focus();
    });
    const label = make("label", { class: "mix" }, "A", input, "B");
    input.ariaLabel = "from A to B";
    if (this.mix === undefined) return [label];
    const back = make("button", { type: "button" }, "A, B and B − A");
    back.addEventListener("click", () => {
      this.mix = undefined;
      this.redraw();
    });
    return [label, back];
  }

  /** The weights of a query on the way from A to B, where that is shown. */
  mixed(places) {
    const row = this.opened.row(places);
    const { weights, view } = this.opened;
    if (this.mix === undefined || !view.panels?.delta || !this.opened.mark(weights)) return row;
    const cell = this.opened.cell(weights, places);
    return row.map((value, key) => {
      const other = this.opened.other(weights, [...cell.slice(0, -1), key]) ?? Number.NaN;
      return view.panels.own === "A" ? blend(value, other, this.mix) : blend(other, value, this.mix);
    });
  }

  /** What chooses a place along an axis before those of a matrix, where the map does not: [] or [label]. */
  places(step, axis, at) {
    const many = step.shape[at];
    if (many < 2 || (axis === "head" && this.opened.weights)) return [];
    const select = make(
      "select",
      { "data-axis": axis },
      ...Array.from({ length: many }, (_, place) => make("option", { value: place }, `${axis} ${place}`)),
    );
    select.value = this.opened.cell(step, this.locked.places)[at];
    select.addEventListener("change", async () => {
      await this.lock({ places: { ...this.locked.places, [axis]: Number(select.value) } });
      document.querySelector(`[data-axis="${axis}"]`)?.focus();
    });
    return [make("label", {}, make("span", { class: "unseen" }, axis), select)];
  }

  toggle(name) {
    this.toggles[this.toggles.has(name) ? "delete" : "add"](name);
    const opposite = { within: "across", across: "within" }[name];
    this.toggles.delete(opposite);
    this.redraw();
    document.querySelector(`[data-toggle="${name}"]`)?.focus();
  }

  save() {
    const { part } = this.panels[0];
    const { view } = this.traces[this.at];
    const about = `${part.label} · ${part.step.title} · ${axesOf(part.step)}`;
    const name = part.label.replace(/\W+/g, "-");
    download(`${name}.svg`, svg(part, view.sentence || view.called || view.name, about), "image/svg+xml");
  }

  /** The colour bar, which axis is which, and what else is marked. */
  legend(step, parts) {
    const scales = parts.filter(
      ({ shades }, at) => parts.findIndex((each) => each.shades === shades) === at,
    );
    return make(
      "p",
      { class: "legend" },
      ...scales.flatMap((part, at) => this.scale(part, scales.length > 1 && at > 0)),
      make("span", { class: "axes" }, axesOf(step)),
      ...[...this.keys(parts)].map(([kind, text]) =>
        make("span", {}, make("i", { class: kind }), ` ${text}`),
      ),
    );
  }

  /** A colour bar with its ends; one that is of a single panel says of which. */
  scale({ shades, name }, isOwn) {
    const canvas = make("canvas", { "aria-hidden": "true" });
    const value = (_, at) => along(shades, at / 127);
    paint(canvas, 128, 1, { rows: 1, columns: 128, value, shades });
    const numbers = this.toggles.has("row") ? ["0", "largest of its row"] : shades.ends().map(short);
    return [
      ...(isOwn ? [make("span", { class: "axes" }, `${name}:`)] : []),
      make("span", {}, numbers[0]),
      canvas,
      make("span", {}, numbers.at(-1)),
      ...(shades.log ? [make("span", {}, "by logarithm")] : []),
    ];
  }

  /** What frames, hatches and grey cells mean, of those that are there: [class, words]. */
  *keys(parts) {
    const some = (get) => parts.some((part) => everyOf(part.rows, part.columns, get(part)).some(Boolean));
    yield ["swatch here", "looked at"];
    if (this.also !== undefined && parts.length > 1)
      yield ["swatch also", `compared: head ${this.also}, dashed`];
    if (some((part) => part.wrong)) yield ["swatch wrong", "wrong"];
    const rules = parts.flatMap((part) => everyOf(part.rows, part.columns, part.hiddenBy));
    for (const rule of new Set(rules.filter(Boolean))) {
      yield [`hatch hatch${parts[0].rules.indexOf(rule)}`, `hidden by ${rule}`];
    }
    const isBlank = (part) => (row, column) =>
      !part.hiddenBy(row, column) && Number.isNaN(part.value(row, column));
    if (some(isBlank)) yield ["swatch blank", "no number"];
    if (parts[0].edges.length) yield ["swatch edge", "a chunk of keys begins"];
  }
}

const short = (value) => String(Number(everyDigit(Number(value.toPrecision(3))))).replace("-", "−");

/** A number on the way from one to another; what is there in one of them alone comes or goes at once. */
function blend(a, b, share) {
  if (!Number.isFinite(a) || !Number.isFinite(b)) return share < 0.5 ? a : b;
  return a + share * (b - a);
}

/** The number that stands at a part of the way along a colour bar. */
function along({ most, signed, log }, part) {
  if (signed) return most * (2 * part - 1);
  return log ? most * 1e-4 ** (1 - part) : most * part;
}

function axesOf(step) {
  const [rows, columns] = step.axes.slice(-2);
  return columns ? `${rows} down, ${columns} across` : (rows ?? "");
}

function everyOf(rows, columns, value) {
  return Array.from({ length: rows * columns }, (_, at) => value(Math.floor(at / columns), at % columns));
}
