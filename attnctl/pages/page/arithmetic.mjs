// The language of `attnctl explain`: forms filled in with numbers, written out, and worked out.

/** Every number of an expression, left to right. */
export function* numbersOf(expr) {
  if (expr.kind === "number") yield expr;
  else if (expr.kind === "call") yield* numbersOf(expr.inside);
  else for (const part of expr.parts) yield* numbersOf(part);
}

const PLACES = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "//": (a, b) => Math.floor(a / b),
  "%": (a, b) => a - b * Math.floor(a / b),
};
const EPS = 2 ** -52; // a unit of rounding to count in
const TWO = { "-": "subtraction", "*": "product", "/": "quotient" };

/** A sum whose parts are no sums: theirs stand in their place. */
function oneSum(parts) {
  return { kind: "sum", parts: parts.flatMap((part) => (part.kind === "sum" ? part.parts : [part])) };
}

/**
 * The arithmetic of a cell from its form (notation.py says what that is).
 * `read(input, cell)` gives the number of an input, `table(number)` a table.
 */
export function filled(form, cell, read, table) {
  const bound = new Map(); // indices by name
  const known = new Map(); // terms that are worked out once
  const inTable = (number, places) => Number(table(number).at(places.map(place)));
  const value = (term) => evaluated(expr(term), 0, 0)[0];

  function place(term) {
    if (typeof term === "number") return term;
    const [kind, first, ...rest] = term;
    if (kind === "axis") return cell[first];
    if (kind === "index") return bound.get(first);
    if (kind === "abs") return Math.abs(place(first));
    if (kind === "table") return inTable(first, rest);
    return PLACES[kind](place(first), place(rest[0]));
  }

  function holds(condition) {
    const [kind, first, second] = condition;
    if (kind === "<") return place(first) < place(second);
    if (kind === "seen") return value(first) !== Number.NEGATIVE_INFINITY;
    return value(condition) !== 0;
  }

  function over(name, size, make, ...conditions) {
    const found = [];
    const before = bound.get(name); // sums within sums may share a name
    for (let at = 0; at < size; at++) {
      bound.set(name, at);
      if (conditions.every(holds)) found.push(make());
    }
    bound.set(name, before);
    return found;
  }

  function workedOut([kind, name, size, body, ...others]) {
    if (kind === "known") {
      const [found, slack] = evaluated(expr(name), EPS, 0);
      return { kind: "number", value: found, spread: slack / EPS };
    }
    const values = [...over(name, size, () => value(body)), ...others.map(value)];
    return { kind: "number", value: values.reduce((a, b) => Math.max(a, b)) };
  }

  function expr(term) {
    if (!Array.isArray(term)) return { kind: "number", value: Number(term) };
    const [kind, first, second, third, ...rest] = term;
    switch (kind) {
      case "read": {
        const at = term.slice(2).map(place);
        return { kind: "number", value: read(first, at), source: { input: first, cell: at } };
      }
      case "table":
        return { kind: "number", value: inTable(first, term.slice(2)) };
      case "number":
        return { kind: "number", value: place(first) };
      case "+":
        return oneSum([expr(first), expr(second)]);
      case "sum":
        return oneSum(over(first, second, () => expr(third), ...rest));
      case "call":
        return { kind, name: first, inside: expr(second) };
      case "where":
        return expr(holds(first) ? second : third);
      case "max":
      case "known":
        if (!known.has(term)) known.set(term, workedOut(term));
        return known.get(term);
      default:
        return { kind: TWO[kind], parts: [expr(first), expr(second)] };
    }
  }

  return expr(form);
}

/**
 * A sum of products of two numbers that are read, as Q Kᵀ has it, without its terms; undefined of other
 * forms. `arrays(input)` gives the Numbers of an input.
 */
export function dot([kind, name, size, body, ...rest], cell, arrays) {
  const factors = body?.[0] === "*" ? body.slice(1) : [];
  const isIndex = ([of, at]) => of === "index" && at === name;
  const isSimple = ([is, input, ...places]) =>
    is === "read" && arrays(input).steps && places.every((place) => place[0] === "axis" || isIndex(place));
  if (kind !== "sum" || rest.length || factors.length !== 2 || !factors.every(isSimple)) return undefined;
  const [one, other] = factors.map(([, input, ...places]) => {
    const array = arrays(input);
    const steps = places.map((place, axis) =>
      isIndex(place) && array.shape[axis] > 1 ? array.steps[axis] : 0,
    );
    const start = array.offset(places.map((place) => (isIndex(place) ? 0 : cell[place[1]])));
    return { values: array.values, start, step: steps.reduce((a, b) => a + b, 0) };
  });
  let sum = 0;
  for (let at = 0; at < size; at++) {
    sum += one.values[one.start + at * one.step] * other.values[other.start + at * other.step];
  }
  return sum;
}

const LONGEST_SUM = 1000; // terms that are added up in one go

/** The sum from left to right, in the groups that Python adds. */
function added(values) {
  if (values.length <= LONGEST_SUM) return values.reduce((sum, value) => sum + value, 0);
  const groups = [];
  for (let at = 0; at < values.length; at += LONGEST_SUM)
    groups.push(added(values.slice(at, at + LONGEST_SUM)));
  return added(groups);
}

/** Of the terms of a long sum the `most` largest in their order (NaN above all), and the rest as one. */
function largest(parts, most) {
  const values = parts.map((part) => evaluated(part, 0, 0)[0]);
  const size = (at) => (Number.isNaN(values[at]) ? Number.POSITIVE_INFINITY : Math.abs(values[at]));
  const bySize = (a, b) => (size(a) === size(b) ? a - b : size(b) - size(a));
  const shown = new Set([...parts.keys()].sort(bySize).slice(0, most));
  const rest = [...parts.keys()].filter((at) => !shown.has(at));
  return [
    ...parts.filter((_, at) => shown.has(at)),
    { kind: "rest", value: added(rest.map((at) => values[at])), terms: rest.length },
  ];
}

/** The expression with sums of more than `most` terms made short; 0 leaves it as it is. */
export function abridged(expr, most) {
  if (!most || expr.kind === "number") return expr;
  if (expr.kind === "call") return { ...expr, inside: abridged(expr.inside, most) };
  const isLong = expr.kind === "sum" && expr.parts.length > most;
  const parts = isLong ? largest(expr.parts, most) : expr.parts;
  return { ...expr, parts: parts.map((part) => (part.kind === "rest" ? part : abridged(part, most))) };
}

/** Whether a sum of an expression was made short. */
export function isAbridged(expr) {
  if (expr.kind === "call") return isAbridged(expr.inside);
  return expr.kind === "rest" || (expr.parts ?? []).some(isAbridged);
}

/** The expression for people, each number as `textOf` has it. */
export function display(expr, textOf, top = true) {
  const inner = (part) => display(part, textOf, false);
  const first = (part) => (part.kind === "number" ? textOf(part) : inner(part));
  switch (expr.kind) {
    case "number":
    case "rest": {
      const text = textOf(expr);
      return top || !text.startsWith("-") ? text : `(${text})`;
    }
    case "sum": {
      const text =
        [...expr.parts.slice(0, 1).map(first), ...expr.parts.slice(1).map(inner)].join(" + ") || "0";
      return top || expr.parts.length === 1 ? text : `(${text})`;
    }
    case "subtraction": {
      const text = `${first(expr.parts[0])} - ${inner(expr.parts[1])}`;
      return top ? text : `(${text})`;
    }
    case "product":
      return expr.parts
        .map((part) => (part.kind === "quotient" ? `(${inner(part)})` : inner(part)))
        .join("·");
    case "quotient":
      return `${first(expr.parts[0])} / ${inner(expr.parts[1])}`;
    default:
      if (expr.name === "sqrt") return `√${inner(expr.inside)}`;
      return `${expr.name}(${display(expr.inside, textOf)})`;
  }
}

const ROUNDINGS = 4; // units in the last place that one operation may be off
const CLOSE = 1e-13; // rounding below this part of a value is not worth a word

/** [what an expression comes to, how far off a machine with this rounding may honestly be]. */
export function evaluated(expr, eps, tiny) {
  const slack = (value, error) => [value, error + ROUNDINGS * eps * Math.abs(value) + tiny];
  switch (expr.kind) {
    case "number":
      return [expr.value, expr.source ? 0 : eps * (Math.abs(expr.value) + (expr.spread ?? 0)) + tiny];
    case "sum": {
      let [value, error, size] = [0, 0, 0];
      for (const part of expr.parts) {
        const [own, off] = evaluated(part, eps, tiny);
        value += own;
        error += off;
        size += Math.abs(own);
      }
      return [value, error + eps * expr.parts.length * size];
    }
    case "subtraction": {
      const [[a, aOff], [b, bOff]] = expr.parts.map((part) => evaluated(part, eps, tiny));
      return slack(a - b, aOff + bOff);
    }
    case "product": {
      let [value, error] = evaluated(expr.parts[0], eps, tiny);
      for (const part of expr.parts.slice(1)) {
        const [own, off] = evaluated(part, eps, tiny);
        const carried = error * (Math.abs(own) + off) + off * Math.abs(value);
        [value, error] = slack(value * own, carried);
      }
      return [value, error];
    }
    case "quotient": {
      const [[a, aOff], [b, bOff]] = expr.parts.map((part) => evaluated(part, eps, tiny));
      if (b === 0) return [Number.NaN, Number.POSITIVE_INFINITY];
      return slack(a / b, (aOff + bOff * Math.abs(a / b)) / Math.abs(b));
    }
    default: {
      const [value, error] = evaluated(expr.inside, eps, tiny);
      const result = Math[expr.name](value);
      if (!Number.isFinite(result)) return [result, Number.POSITIVE_INFINITY];
      const turning = expr.name === "cos" || expr.name === "sin";
      const moved = error * (expr.name === "exp" ? Math.abs(result) : 1);
      const off = ROUNDINGS * eps * (Math.abs(result) + (turning ? Math.abs(value) : 0));
      return [result, (Number.isFinite(error) ? moved : Number.POSITIVE_INFINITY) + off];
    }
  }
}

/** {rounding} of a recorded value, or {gives}: what its arithmetic comes to where that is another number. */
export function settled(expr, value, { eps, tiny, most }) {
  const [found, slack] = evaluated(expr, eps, tiny);
  if (found === value || (Number.isNaN(found) && Number.isNaN(value))) return { rounding: 0 };
  const infinite = value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY;
  if (infinite && Math.abs(found) + slack > most && found > 0 === value > 0) return { rounding: 0 };
  const difference = value - found;
  if (!(Math.abs(difference) <= slack)) return { rounding: 0, gives: found };
  return { rounding: Math.abs(difference) > CLOSE * Math.abs(value) ? difference : 0 };
}
