// One cell of a trace: the strings that `attnctl explain` writes of it, and the cells it came from.

import {
  abridged,
  display,
  dot,
  evaluated,
  filled,
  isAbridged,
  numbersOf,
  settled,
} from "./arithmetic.mjs";
import { leading } from "./data.mjs";
import { forPeople } from "./numbers.mjs";

const KINDS = {
  float16: { eps: 2 ** -10, tiny: 2 ** -24, most: 65504 },
  float32: { eps: 2 ** -23, tiny: 2 ** -149, most: 3.4028234663852886e38 },
  float64: { eps: 2 ** -52, tiny: 2 ** -1074, most: Number.MAX_VALUE },
};

/** Whether a cell is among those of an edit, whose places are numbers, or null for a whole axis. */
function within(cell, places) {
  return places.every((place, axis) => place === null || place === cell[axis]);
}

/** The words for terms of a sum that are not written out. */
function unwritten(terms) {
  return `… ${terms.toLocaleString("en-US")} more`;
}

/** A number, and what the rest of a long sum comes to. */
function figure(number) {
  const text = forPeople(number.value);
  return number.kind === "rest" ? `${unwritten(number.terms)}: ${text}` : text;
}

/** A sentence with {} where its values go. */
function said(words, ...values) {
  return values.reduce((text, value) => text.replace("{}", () => value), words);
}

/** The numbers of a step that the page does not hold, each worked out when it is first asked for. */
class Computed {
  constructor({ shape, form }, inputs, expression) {
    Object.assign(this, { shape, form, inputs, expression, known: new Map() });
  }

  at(cell) {
    const key = String(cell);
    if (!this.known.has(key)) {
      const found = dot(this.form, cell, this.inputs) ?? evaluated(this.expression(cell), 0, 0)[0];
      this.known.set(key, found);
    }
    return this.known.get(key);
  }

  get values() {
    return leading([...this.shape, 1, 1]).map((cell) => this.at(cell));
  }

  cellAt(offset) {
    return leading([...this.shape, 1, 1])[offset];
  }
}

/** A trace whose numbers are there, which explains its cells. */
export class Explained {
  /** `trace` as the page has it; `arrays` the Numbers of its steps, `tables` those of its forms. */
  constructor(trace, arrays, tables, words) {
    this.trace = trace;
    this.steps = new Map(trace.steps.map((step) => [step.name, step]));
    this.arrays = new Map(arrays);
    for (const step of trace.steps) {
      if (step.block === null) {
        const inputs = (input) => this.arrays.get(step.inputs[input]);
        this.arrays.set(step.name, new Computed(step, inputs, (cell) => this.expression(step, cell)));
      }
    }
    this.tables = tables;
    this.words = words;
  }

  /** A cell as an address: scores[0,love,AI]. */
  spelled(name, cell) {
    const words = this.steps.get(name).words.map((known) => known && this.trace.spellings[known]);
    const places = cell.map((at, axis) => words[axis]?.[at] ?? String(at));
    return places.length ? `${name}[${places.join(",")}]` : name;
  }

  value(name, cell) {
    return Number(this.arrays.get(name).at(cell));
  }

  /** The number of the rule that hides a cell, -1 where none does. */
  hiddenBy(step, cell) {
    return step.hides ? this.tables.get(step.hides.block).at(cell) - 1 : -1;
  }

  /** The arithmetic of a cell, or undefined where the page does not have it. */
  expression(step, cell) {
    if (!step.form) return undefined;
    const read = (input, place) => this.value(step.inputs[input], place);
    return filled(step.form, cell, read, (number) => this.tables.get(number));
  }

  /** The coarsest type of number that a step was worked out in. */
  kind(step) {
    const kinds = [step.dtype, ...step.inputs.map((name) => this.steps.get(name)?.dtype), "float64"];
    const known = kinds.filter((name) => name in KINDS).map((name) => KINDS[name]);
    return known.reduce((a, b) => (b.eps > a.eps ? b : a));
  }

  /**
   * {name, formula, value, expr, symbols, figures, differs, cut, notes, operands, why} of a cell; of sums of
   * more than `most` terms the largest are written out, 0 writes out all.
   */
  explain(name, cell, most = 12) {
    const step = this.steps.get(name);
    const value = this.value(name, cell);
    const about = { step: name, cell, name: this.spelled(name, cell), value, formula: step.formula };
    const edited = step.edits.find((edit) => within(cell, edit.places));
    if (edited) return this.changed(about, edited.note);
    if (step.given) return this.changed(about, "", step.formula);
    const expr = this.expression(step, cell);
    if (!expr) return { ...about, figures: [forPeople(value)], operands: [], notes: [], why: step.why };
    const { rounding, gives } = settled(expr, value, this.kind(step));
    if (gives !== undefined && step.edits.length) return this.changed(about, this.words.row_edited);
    const figures = [forPeople(gives ?? value)];
    const shown = abridged(expr, most);
    if (expr.kind !== "number") figures.unshift(display(shown, figure));
    return {
      ...about,
      expr,
      figures,
      differs: gives !== undefined,
      cut: isAbridged(shown),
      symbols: display(shown, (each) => this.symbol(step, each)),
      operands: this.operands(step, expr),
      notes: [...this.notes(step, cell, expr, value, rounding, gives)],
    };
  }

  /** What there is to say of a number that was handed in, or put there by hand. */
  changed(about, note, formula = this.words.edited) {
    return {
      ...about,
      formula,
      figures: [forPeople(about.value)],
      operands: [],
      notes: note ? [note] : [],
    };
  }

  symbol(step, number) {
    if (number.kind === "rest") return unwritten(number.terms);
    if (!number.source) return forPeople(number.value);
    return this.spelled(step.inputs[number.source.input], number.source.cell);
  }

  /** The cells that were read, each once. */
  operands(step, expr) {
    const found = new Map();
    for (const { source, value } of numbersOf(expr)) {
      if (!source) continue;
      const name = step.inputs[source.input];
      found.set(`${name} ${source.cell}`, {
        step: name,
        cell: source.cell,
        name: this.spelled(name, source.cell),
        value,
      });
    }
    return [...found.values()];
  }

  *notes(step, cell, expr, value, rounding, gives) {
    if (gives !== undefined) yield said(this.words.differs, forPeople(value));
    const exact = forPeople(value - rounding);
    if (Number.isFinite(value) && exact !== forPeople(value)) {
      yield said(this.words.rounded, step.dtype, exact);
    }
    const top = expr.parts?.[0]?.inside?.parts?.[1];
    if (step.softmax && top?.kind === "number") yield said(this.words.maximum, forPeople(top.value));
    if (step.computed) yield this.words.computed;
    const rule = this.hiddenBy(step, cell);
    if (rule >= 0) yield said(this.words.hidden, step.hides.names[rule]);
  }
}
