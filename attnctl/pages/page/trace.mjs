// One trace of the page whose numbers are there: its steps, and where in them a reader stands.

import { seen } from "./elements.mjs";
import { Explained } from "./explain.mjs";

export const WEIGHTS = "attention_weights";
const GRADIENT = `d_${WEIGHTS}`; // where the page of a backward pass opens
const INNER = 2; // axes of a matrix

/** Inflate the numbers of a trace. */
export async function opened(trace, blocks, words) {
  const { steps } = trace.view;
  const numbers = new Set(steps.flatMap((step) => [step.block, ...step.tables]));
  for (const step of steps) if (step.hides) numbers.add(step.hides.block);
  for (const mark of Object.values(trace.marks ?? {})) numbers.add(mark.wrong).add(mark.other);
  numbers.add(trace.view.norms ?? null).delete(null);
  const loaded = await Promise.all([...numbers].map(async (at) => [at, await blocks.get(at)]));
  return new Opened(trace, new Map(loaded), words);
}

const QUOTED = /^("(?:[^"\\]|\\.)*\\u(?:[^"\\]|\\.)*")(#\d+)?$/;

/** A spelling without the escapes of what people see; one without escapes as it is. */
function unescaped(word) {
  const [, token, number = ""] = QUOTED.exec(word) ?? [];
  return token ? seen(JSON.parse(token)) + number : word;
}

class Opened {
  constructor(trace, tables, words) {
    this.trace = trace;
    this.view = trace.view;
    this.tables = tables;
    const arrays = new Map(this.view.steps.map((step) => [step.name, tables.get(step.block)]));
    this.explained = new Explained(this.view, arrays, tables, words);
    this.weights = this.explained.steps.get(WEIGHTS);
    this.norms = tables.get(this.view.norms);
  }

  step(name) {
    return this.explained.steps.get(name);
  }

  array(name) {
    return this.explained.arrays.get(name);
  }

  /** What stands beside the places along an axis of a step. */
  names(step, axis) {
    const words = step.words[axis] && this.view.spellings[step.words[axis]];
    return words || Array.from({ length: step.shape[axis] }, (_, at) => String(at));
  }

  /** The same as people see them: an address escapes what joins two emoji. */
  labels(step, axis) {
    return this.names(step, axis).map(unescaped);
  }

  /** A place of a cell in words: a token, or a number and its axis. */
  place(step, cell, axis) {
    const word = this.labels(step, axis)[cell[axis]];
    return step.words[axis] ? word : `${step.axes[axis]} ${word}`;
  }

  /** [queries, keys] of the weights, as words. */
  sides() {
    if (!this.weights) return [[], []];
    const axes = this.weights.shape.length;
    return [this.names(this.weights, axes - 2), this.names(this.weights, axes - 1)];
  }

  /** For each key the number of its sentence: a special token in the middle ends one. */
  sentences() {
    const [, keys] = this.sides();
    const ends = new Set((this.view.special ?? []).filter((at) => at > 0));
    let number = 0;
    return keys.map((_, at) => (ends.has(at) && at < keys.length - 1 ? number++ : number));
  }

  /** The cell of a step that stands at places by axis, as near as it has one. */
  cell(step, places) {
    return step.axes.map((axis, at) => {
      const size = step.shape[at];
      let place = places[axis] ?? (axis === "token" ? places.query : undefined) ?? 0;
      const heads = this.weights?.shape.at(-3) ?? 1;
      if (axis === "head" && size < heads) place = Math.floor((place * size) / heads);
      return Math.max(0, Math.min(place, size - 1));
    });
  }

  /** Places by axis, those of a cell over the others. */
  places(step, cell, others) {
    const found = { ...others };
    const heads = this.weights?.shape.at(-3) ?? 1;
    step.axes.forEach((axis, at) => {
      const shared = axis === "head" && step.shape[at] < heads;
      if (!shared) found[axis] = cell[at];
      if (axis === "token") found.query = cell[at];
    });
    return found;
  }

  /** The weights that a query gives, by key. */
  row(places) {
    const cell = this.cell(this.weights, places);
    const array = this.array(WEIGHTS);
    return Array.from({ length: this.weights.shape.at(-1) }, (_, key) =>
      Number(array.at([...cell.slice(0, -1), key])),
    );
  }

  /** Numbers of a matrix as they are, by row and column; `lead` the places before them. */
  matrix(step, lead) {
    const [rows, columns] = [1, 1, ...step.shape].slice(-INNER);
    const array = this.array(step.name);
    const axes = step.shape.length;
    const at = (row, column) => (axes ? [...lead, row, column].slice(-axes) : []);
    return {
      rows,
      columns,
      cell: at,
      rowNames: axes > 1 ? this.labels(step, axes - 2) : [step.symbol],
      columnNames: axes ? this.labels(step, axes - 1) : [""],
      value: (row, column) => Number(array.at(at(row, column))),
      hiddenBy: (row, column) => {
        const rule = this.explained.hiddenBy(step, at(row, column));
        return rule < 0 ? "" : step.hides.names[rule];
      },
    };
  }

  mark(step) {
    return this.trace.marks?.[step.name];
  }

  /** The steps that a finding is about, in order. */
  marked() {
    const about = ({ name }) => this.tables.get(this.trace.marks?.[name]?.wrong)?.values.some(Boolean);
    return this.view.steps.filter(about).map(({ name }) => name);
  }

  /** Whether a finding is about a cell. */
  isWrong(step, cell) {
    const mark = this.mark(step);
    return Boolean(mark && this.tables.get(mark.wrong).at(cell));
  }

  /** What a finding puts beside a cell; undefined where it has none. */
  other(step, cell) {
    const mark = this.mark(step);
    const found = mark && mark.other !== null ? Number(this.tables.get(mark.other).at(cell)) : Number.NaN;
    return Number.isNaN(found) ? undefined : found;
  }

  /** Where to begin: what a finding is about, or the weight that says most, of these heads or of all. */
  opening(heads) {
    for (const step of this.view.steps) {
      const mark = this.mark(step);
      const cell = mark && this.worst(step, mark);
      if (cell) return { step: step.name, places: this.places(step, cell, {}) };
    }
    const back = this.view.steps.filter(({ gradient }) => gradient);
    const step =
      back.find(({ name }) => name === GRADIENT) ?? back.at(-1) ?? this.weights ?? this.view.steps.at(-1);
    if (!step?.shape.every(Boolean)) return { step: step?.name, places: {} };
    const cell = step === this.weights ? this.telling(heads) : this.largest(step, heads);
    return { step: step.name, places: this.places(step, cell, {}) };
  }

  /** The marked cell that is furthest off; the first where nothing stands beside it. */
  worst(step, { wrong }) {
    const marked = this.tables.get(wrong);
    let [found, most] = [undefined, -1];
    for (const [at, is] of marked.values.entries()) {
      if (!is) continue;
      const cell = marked.cellAt(at);
      const off = Math.abs(Number(this.array(step.name).at(cell)) - (this.other(step, cell) ?? Number.NaN));
      if (!found || off > most) [found, most] = [cell, off];
    }
    return found;
  }

  /** The number of a step that is furthest from 0, of these heads or of all. */
  largest(step, heads) {
    const array = this.array(step.name);
    const axis = step.axes.indexOf("head");
    let [found, most] = [0, -1];
    array.values.forEach((value, at) => {
      const size = Math.abs(Number(value));
      if (size > most && (axis < 0 || (heads?.includes(array.cellAt(at)[axis]) ?? true)))
        [found, most] = [at, size];
    });
    return array.cellAt(found);
  }

  /**
   * The largest weight from one token to another, neither of them special nor the first: of a head that does
   * more than look at the word before or at itself, and not between neighbours, where there is one.
   */
  telling(heads) {
    const array = this.array(WEIGHTS);
    const special = new Set([0, ...(this.view.special ?? [])]);
    const plain = new Set(["previous", "self"]);
    const does = (at) => this.view.heads?.[Math.floor(at / size) % all]?.name;
    const [queries, keys] = this.weights.shape.slice(-2);
    const apart = keys - queries;
    const size = queries * keys;
    const all = this.weights.shape.at(-3) ?? 1;
    const chosen = (at) => heads?.includes(Math.floor(at / size) % all) ?? true;
    let [found, most] = [0, -1];
    for (const wanted of [
      (q, k, at) =>
        !plain.has(does(at)) && !special.has(k) && !special.has(q + apart) && Math.abs(q + apart - k) > 1,
      (q, k) => !special.has(k) && !special.has(q + apart) && q + apart !== k,
      () => true,
    ]) {
      array.values.forEach((value, at) => {
        const [query, key] = [Math.floor(at / keys) % queries, at % keys];
        if (value > most && wanted(query, key, at) && chosen(at)) [found, most] = [at, Number(value)];
      });
      if (most >= 0) break;
    }
    return array.cellAt(found);
  }
}
