// The proof of a cell: the number first, then how it comes about, each operand a link.

import { numbersOf } from "./arithmetic.mjs";
import { make } from "./elements.mjs";
import { everyDigit, forPeople } from "./numbers.mjs";
import { WEIGHTS } from "./trace.mjs";
import { counted, short, sumIn, typeset, worth } from "./typeset.mjs";

const STEP = "Step by step";

const MOST = { bars: 6, lines: 4, written: 12 };

/** A share in words: of a small one a digit more, of one that is almost nothing its bound. */
function percent(share) {
  if (share > 0 && share < 0.0005) return "less than 0.1 %";
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

/** A token in a sentence; one that looks like a number has quotes already. */
function inQuotes(token) {
  return token?.startsWith('"') ? make("bdi", {}, token) : make("q", {}, token);
}

export class Proof {
  /** `follow(operand)` goes to a cell that was read; `say(text)` tells what was done. */
  constructor(element, follow, say) {
    Object.assign(this, { element, follow, say, every: false });
    addEventListener("keydown", (event) => this.pressed(event));
  }

  /** Space shows the next part of the way to the number; Escape all of it. */
  pressed(event) {
    if (this.part === undefined || event.defaultPrevented) return;
    const own = event.target.closest?.("button, a, select, input, summary");
    if (event.key === " " && !(own && own !== this.player)) this.play();
    else if (event.key === "Escape") this.end();
    else return;
    event.preventDefault();
  }

  /** What a number comes of, the first first: each product of a sum, what they come to, and so on. */
  parts() {
    const lines = [...this.element.querySelectorAll(".line")].reverse();
    return lines.flatMap((line) => {
      const bars = line.nextElementSibling?.matches(".bars") ? [...line.nextElementSibling.children] : [];
      return [...bars, line];
    });
  }

  /** Begin at the first product, or show one part more; after the last the number itself. */
  play() {
    const parts = this.parts();
    this.part = this.part === undefined ? 1 : this.part + 1;
    if (this.part > parts.length) return this.end();
    this.element.classList.add("playing");
    for (const [at, part] of parts.entries()) part.classList.toggle("later", at >= this.part);
    for (const part of parts) part.classList.toggle("now", part === parts[this.part - 1]);
    this.player.textContent = `Next (space) ${this.part} / ${parts.length}`;
    return undefined;
  }

  /** Show all of it. */
  end() {
    this.part = undefined;
    this.element.classList.remove("playing");
    for (const part of this.element.querySelectorAll(".later, .now")) part.classList.remove("later", "now");
    this.player.textContent = STEP;
  }

  /** Show a cell of a trace: {opened, step, cell, where, command}, and `norm` where it weighs values. */
  show(shown) {
    this.shown = shown;
    this.part = undefined;
    this.element.classList.remove("playing");
    const { opened, step, cell } = shown;
    const { explained } = opened;
    const most = this.every ? 0 : MOST.written;
    const lines = chain(explained, explained.explain(step.name, cell, most), most);
    this.element.replaceChildren(
      this.result(lines[0], shown),
      ...lines.flatMap((found, at) => this.line(found, opened, at)),
      this.written(lines[0]),
      this.tools(lines[0], shown),
    );
  }

  /** The number, large, and what it is. */
  result(found, { opened, step, cell, where, norm }) {
    const rule = explainedRule(opened, step, cell);
    const [row, column] = ends(opened, step, cell);
    const arrow = step.axes.at(-1) === "key" && step.axes.at(-2) === "query";
    const who = make("h2", { class: "who" }, make("bdi", {}, row ?? step.symbol));
    if (column !== undefined) who.append(arrow ? " → " : ", ", make("bdi", {}, column));
    const means =
      step.name === WEIGHTS && !rule
        ? [percent(found.value), " of what ", inQuotes(row), " reads comes from ", inQuotes(column)]
        : [rule ? `hidden by ${rule}` : (found.title ?? "")];
    return make(
      "div",
      { class: "result" },
      who,
      make("p", { class: "value" }, short4(found.value)),
      make("p", { class: "means" }, ...means),
      make("p", { class: "where" }, [where, step.title].filter(Boolean).join(" · ")),
      ...(norm === undefined ? [] : [weighed(found.value, norm)]),
      ...this.compared(opened, step, cell, found.value),
    );
  }

  /** What a finding puts beside the number. */
  compared(opened, step, cell, value) {
    const other = opened.other(step, cell);
    if (other === undefined || !opened.view.panels) return [];
    const { own, other: name, delta } = opened.view.panels;
    const rows = [
      [own, value],
      [name, other],
    ];
    if (own === "B") rows.reverse();
    if (delta) rows.push([delta, rows[1][1] - rows[0][1]]);
    return [sideBySide(rows, opened.isWrong(step, cell) && !delta ? "beside wrong" : "beside")];
  }

  /** One line of the way back: its arithmetic set as it is written by hand, its sum as bars, its notes. */
  line(found, opened, at) {
    const link = (number) =>
      this.operand(found.operands, opened, found.inputs[number.source.input], number);
    const set = make("div", { class: "formula" });
    const sum = found.expr && sumIn(found.expr);
    if (found.expr?.source) set.append("= ", link(found.expr));
    else if (found.expr && found.expr !== sum && found.expr.kind !== "number") {
      set.append(
        typeset(found.expr, link),
        make("span", {}, "= ", make("b", {}, short(worth(found.expr)))),
      );
    }
    const name = at ? make("code", {}, found.step) : this.named(found, opened);
    const head = name && make("h3", {}, name, ` = ${found.formula}`);
    const parts = [make("div", { class: "line" }, ...(head ? [head] : []), set)];
    if (sum?.parts.length) parts.push(this.bars(sum, found, opened, link));
    const notes = [...found.notes, ...(found.why ? [found.why] : [])];
    return [...parts, ...notes.map((note) => make("p", { class: "note", "data-step": found.step }, note))];
  }

  /** What the first line comes to, where that is not the number that was found. */
  named(found, { view }) {
    const beside = found.differs && view.panels && !view.panels.delta;
    return beside ? make("b", {}, view.panels.other) : undefined;
  }

  /** A number that was read, as a link to its cell. */
  operand(operands, _opened, step, { source, value }) {
    const operand = operands.find(
      (each) => each.step === step && String(each.cell) === String(source.cell),
    );
    const button = make(
      "button",
      {
        type: "button",
        class: "operand",
        title: operand?.name,
        "aria-label": `${operand?.name}: ${short(value)}`,
      },
      short(value),
    );
    button.addEventListener("click", () => this.follow({ step, cell: source.cell }));
    return button;
  }

  /** The largest terms of a sum, each with a bar. */
  bars(sum, found, opened, link) {
    const terms = sum.parts.map((part) => ({
      part,
      value: worth(part),
      name: termName(part, sum, found, opened),
    }));
    const bySize = [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
    const shown = bySize.slice(0, this.every ? bySize.length : MOST.bars);
    const most = Math.abs(bySize[0].value) || 1;
    const signed = terms.some(({ value }) => value < 0);
    const rows = shown.map(({ part, value, name }) =>
      make(
        "li",
        {},
        make("bdi", { class: "name" }, name),
        make("span", { class: "term" }, typeset(part, link)),
        bar(value / most, signed),
        make("span", { class: "figure" }, short(value)),
      ),
    );
    const rest = bySize.slice(shown.length).reduce((total, { value }) => total + value, 0);
    if (shown.length < terms.length) {
      const more = make(
        "button",
        { type: "button", class: "name more" },
        `… ${terms.length - shown.length} more`,
      );
      more.addEventListener("click", () => this.toggle());
      rows.push(
        make(
          "li",
          {},
          more,
          make("span"),
          bar(rest / most, signed),
          make("span", { class: "figure" }, short(rest)),
        ),
      );
    }
    const total = make(
      "li",
      { class: "total" },
      make("span", { class: "name" }, `Σ ${counted(terms.length)}`),
    );
    total.append(make("span"), make("span"), make("b", { class: "figure" }, short(worth(sum))));
    return make("ol", { class: "bars" }, ...rows, total);
  }

  /** Write out every term, or the largest. */
  toggle() {
    this.every = !this.every;
    this.show(this.shown);
  }

  /** The line as `attnctl explain` writes it. */
  written(found) {
    const start = `${found.name} = `;
    const lines = [];
    if (found.operands.length) lines.push(make("p", { class: "equation symbols" }, start + found.symbols));
    lines.push(make("p", { class: "equation figures" }, start + found.figures.join(" = ")));
    const every = make("button", { type: "button", "aria-pressed": String(this.every) }, "every term");
    every.addEventListener("click", () => this.toggle());
    if (found.cut || this.every) lines.push(every);
    const details = make("details", { class: "written" }, make("summary", {}, "written out"), ...lines);
    details.open = this.open ?? false;
    details.addEventListener("toggle", () => {
      this.open = details.open;
    });
    return details;
  }

  /** The number in full and the command that explains it, to copy. */
  tools(found, { command }) {
    const digits = everyDigit(found.value);
    this.player = make("button", { type: "button", class: "play" }, STEP);
    this.player.addEventListener("click", () => this.play());
    return make(
      "div",
      { class: "tools" },
      ...(found.operands.length ? [this.player] : []),
      this.copied(digits, make("code", {}, digits), "every digit"),
      ...(command ? [this.copied(command, make("code", {}, command), "the command")] : []),
    );
  }

  copied(text, content, what) {
    const button = make("button", { type: "button" }, "Copy");
    button.ariaLabel = `Copy ${what}`;
    button.addEventListener("click", () => this.say(text, `Copied ${what}.`));
    return make("div", {}, content, button);
  }
}

const short4 = (value) => forPeople(value).replace("-", "−");

/** Numbers beside each other, each below its name. */
function sideBySide(rows, kind) {
  const cells = rows.flatMap(([text, each]) => [make("dt", {}, text), make("dd", {}, short4(each))]);
  return make("dl", { class: kind }, ...cells);
}

/** A weight, the norm of what it weighs, and their product, which the matrix shows. */
function weighed(weight, norm) {
  const rows = [
    ["weight", weight],
    ["‖V·W_O‖", norm],
    ["value-weighted", weight * norm],
  ];
  return sideBySide(rows, "beside");
}

function explainedRule(opened, step, cell) {
  const rule = opened.explained.hiddenBy(step, cell);
  return rule < 0 ? "" : step.hides.names[rule];
}

/** The words at the last two places of a cell; a number says of which axis it is. */
function ends(opened, step, cell) {
  const start = Math.max(0, cell.length - 2);
  return cell.slice(start).map((_, i) => opened.place(step, cell, start + i));
}

/** A cell and what it comes from, as long as that is one cell: back to where a sum is taken. */
function chain(explained, found, most) {
  const lines = [withInputs(explained, found)];
  while (lines.length < MOST.lines) {
    const last = lines.at(-1);
    const same = last.operands.filter(({ cell }) => String(cell) === String(last.cell));
    const next =
      last.operands.length === 1 ? last.operands[0] : sumIn(last.expr) === last.expr ? undefined : same[0];
    if (!next || !explained.steps.has(next.step)) break;
    lines.push(withInputs(explained, explained.explain(next.step, next.cell, most)));
  }
  return lines;
}

function withInputs(explained, found) {
  return { ...found, inputs: explained.steps.get(found.step).inputs };
}

/** The word for a term: the place that differs from one term to the next. */
function termName(part, sum, found, opened) {
  const first = (each) => each && [...numbersOf(each)].find(({ source }) => source)?.source;
  const [own, start, next] = [part, sum.parts[0], sum.parts[1]].map(first);
  if (!own) return "";
  const step = opened.step(found.inputs[own.input]);
  if (!start || !next || own.input !== start.input) return step?.symbol ?? "";
  const axis = start.cell.findIndex((place, at) => place !== next.cell[at]);
  if (axis < 0 || !step) return step?.symbol ?? "";
  return opened.place(step, own.cell, axis);
}

/** A bar from 0; where some are negative 0 is in the middle. */
function bar(share, signed) {
  const outer = make("span", { class: signed ? "bar signed" : "bar", "aria-hidden": "true" });
  const inner = make("i", { class: share < 0 ? "negative" : null });
  const size = Math.min(1, Math.abs(share)) * (signed ? 50 : 100);
  inner.style.width = `${size}%`;
  if (signed) inner.style.left = `${share < 0 ? 50 - size : 50}%`;
  outer.append(inner);
  return outer;
}
