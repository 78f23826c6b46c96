// The derivation of one trace: its steps from top to bottom, and the cell that is looked at.

import { Shades } from "./colours.mjs";
import { leading } from "./data.mjs";
import { make } from "./elements.mjs";
import { Explained } from "./explain.mjs";
import { lightLines, linesFor, MOST_JOINED } from "./lines.mjs";
import { matrixFor, TableMatrix } from "./matrix.mjs";
import { forPeople } from "./numbers.mjs";

const LINED = "attention_weights"; // the step whose tokens are joined by lines
const MOST_LIT = 4096; // operands that are lit up

/** One trace, laid out from top to bottom. */
export class Derivation {
  constructor(trace, blocks, words, panel, main) {
    Object.assign(this, { trace, blocks, words, panel, main });
    this.matrices = new Map(); // "step lead" -> matrix
    this.pictures = new Map(); // the same -> lines between tokens
    this.shades = new Map(); // by step: all of its heads are shaded alike
    this.trail = [];
  }

  /** Inflate the numbers and lay out every step. */
  async open() {
    const { steps } = this.trace.view;
    const arrays = await Promise.all(steps.map((step) => this.blocks.get(step.block)));
    const numbers = new Set(steps.flatMap((step) => step.tables));
    for (const step of steps) if (step.hides) numbers.add(step.hides.block);
    for (const mark of Object.values(this.trace.marks ?? {})) numbers.add(mark.wrong).add(mark.other);
    numbers.delete(null);
    const tables = await Promise.all([...numbers].map(async (at) => [at, await this.blocks.get(at)]));
    this.explained = new Explained(
      this.trace.view,
      new Map(steps.map((step, at) => [step.name, arrays[at]])),
      new Map(tables),
      this.words,
    );
    this.main.replaceChildren(...steps.map((step) => this.section(step)));
    this.later = new IntersectionObserver((seen) => this.drawSeen(seen), { rootMargin: "600px" });
    for (const matrix of this.matrices.values()) {
      if (!(matrix instanceof TableMatrix)) this.later.observe(matrix.element);
    }
  }

  drawSeen(seen) {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      this.later.unobserve(target);
      for (const matrix of this.matrices.values()) if (matrix.element === target) matrix.shade();
    }
  }

  redraw() {
    for (const matrix of this.matrices.values()) matrix.shade();
  }

  section(step) {
    const id = `step-${step.name}`;
    const size = step.shape.length
      ? `${step.shape.join(" × ")} (${step.axes.join(", ")})`
      : "a single number";
    const facts = [size, step.dtype, step.cost].filter(Boolean).join(" · ");
    const heading = make(
      "h2",
      { id },
      make("code", {}, step.name),
      " ",
      make("span", { class: "formula" }, step.title),
    );
    const parts = make("div", { class: "heads" });
    const section = make(
      "section",
      { "aria-labelledby": id },
      heading,
      make("p", { class: "facts" }, facts),
      parts,
    );
    if (!step.shape.every(Boolean)) parts.append(make("p", {}, "no numbers"));
    else parts.append(...leading(step.shape).map((lead) => this.figure(step, lead)));
    return section;
  }

  /** A matrix of a step under its head. */
  figure(step, lead) {
    const array = this.explained.arrays.get(step.name);
    if (!this.shades.has(step.name)) this.shades.set(step.name, new Shades(array.values));
    const shades = this.shades.get(step.name);
    const caption = lead.map((at, axis) => `${step.axes[axis]} ${at}`).join(", ");
    const label = caption ? `${step.name}, ${caption}` : step.name;
    const [rows, columns] = [1, 1, ...step.shape].slice(-2);
    const names = (axis, count) => this.names(step, axis, count);
    const mark = this.trace.marks?.[step.name];
    const wrong = mark && this.explained.tables.get(mark.wrong);
    const cellOf = (row, column) => matrix.cell([row, column]);
    const part = {
      step,
      lead,
      rows,
      columns,
      label,
      shades,
      rowNames: step.shape.length > 1 ? names(step.shape.length - 2, rows) : [step.symbol],
      columnNames: step.shape.length ? names(step.shape.length - 1, columns) : [""],
      value: (row, column) => Number(array.at(cellOf(row, column))),
      hidden: (row, column) => this.explained.hiddenBy(step, cellOf(row, column)) >= 0,
      wrong: (row, column) => Boolean(wrong?.at(cellOf(row, column))),
    };
    const matrix = matrixFor(part, (...visited) => this.visit(...visited));
    const head = step.axes.indexOf("head");
    const element = make("figure", {
      "data-head": head < 0 ? null : lead[head],
      "data-heads": step.shape[head],
    });
    if (caption) element.append(make("figcaption", {}, caption));
    element.append(make("div", { class: "scroll" }, matrix.build()));
    const key = `${step.name} ${lead}`;
    this.matrices.set(key, matrix);
    if (step.name === LINED && rows <= MOST_JOINED && columns <= MOST_JOINED) {
      const lines = linesFor(part.rowNames, part.columnNames, part.value, label);
      this.pictures.set(key, lines);
      element.append(lines);
    }
    return element;
  }

  /** What stands beside the places along an axis. */
  names(step, axis, count) {
    const words = step.words[axis] && this.trace.view.spellings[step.words[axis]];
    if (words) return words;
    return Array.from({ length: count }, (_, at) => String(at));
  }

  /** A cell was pointed at or reached, its first operand is wanted, or the way back. */
  visit(matrix, place, how) {
    const { step } = matrix.part;
    const cell = matrix.cell(place);
    if (how === "back") {
      const from = this.trail.pop();
      if (from) this.go(from.step, from.cell);
    } else if (how === "follow") {
      const [operand] = this.explained.explain(step.name, cell).operands;
      if (operand) this.follow(operand);
    } else if (this.seen !== `${step.name} ${cell}`) {
      this.light(step.name, cell);
    }
  }

  follow(operand) {
    this.trail.push(this.looked);
    this.go(operand.step, operand.cell);
  }

  /** Move to a cell of another step. */
  go(name, cell) {
    const matrix = this.matrices.get(`${name} ${cell.slice(0, -2)}`);
    if (!matrix) return;
    matrix.element.closest("figure").hidden = false;
    matrix.focus(matrix.placeOf(cell));
    matrix.element.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Show the arithmetic of a cell, and light up what it came from. */
  light(name, cell) {
    this.seen = `${name} ${cell}`;
    this.looked = { step: name, cell };
    const found = this.explained.explain(name, cell, this.panel.most);
    for (const matrix of this.lit ?? []) matrix.clear();
    const here = this.matrices.get(`${name} ${cell.slice(0, -2)}`);
    here.mark(here.placeOf(cell), "here", true);
    this.lit = new Set([here]);
    for (const operand of found.operands.slice(0, MOST_LIT)) {
      const matrix = this.matrices.get(`${operand.step} ${operand.cell.slice(0, -2)}`);
      matrix?.mark(matrix.placeOf(operand.cell), "lit", true);
      if (matrix) this.lit.add(matrix);
    }
    for (const lines of this.pictures.values()) lightLines(lines);
    const lines = this.pictures.get(`${name} ${cell.slice(0, -2)}`);
    if (lines) lightLines(lines, cell.at(-2));
    const step = this.explained.steps.get(name);
    this.panel.show({ ...found, title: step.title }, this.marked(name, cell), () => this.light(name, cell));
  }

  /** What a finding says of a cell. */
  marked(name, cell) {
    const mark = this.trace.marks?.[name];
    if (!mark || mark.other === null || !this.explained.tables.get(mark.wrong).at(cell)) return [];
    return [
      mark.words.replace("{}", () => forPeople(Number(this.explained.tables.get(mark.other).at(cell)))),
    ];
  }
}
