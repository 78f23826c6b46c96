// Arithmetic as it is written by hand: real fractions, exponents, sums with their largest terms as bars.

import { evaluated } from "./arithmetic.mjs";
import { make } from "./elements.mjs";
import { forPeople } from "./numbers.mjs";

const MOST_PARTS = 2; // of a sum that is written out in a line
const DIGITS = 3;

export const worth = (expr) => evaluated(expr, 0, 0)[0];

/** A minus as it is set. */
const minus = (text) => text.replace("-", "−");
export const short = (value) => minus(forPeople(value, DIGITS));

/** The expression in elements; `link(number)` gives the element of a number that was read, or nothing. */
export function typeset(expr, link, top = true) {
  const inner = (part) => typeset(part, link, false);
  const paired = (content) => (top ? content : make("span", {}, "(", content, ")"));
  switch (expr.kind) {
    case "number": {
      const number = (expr.source && link(expr)) ?? make("span", {}, short(expr.value));
      return top || expr.value >= 0 ? number : make("span", {}, "(", number, ")");
    }
    case "sum":
      if (expr.parts.length > MOST_PARTS) return summed(expr);
      return paired(joined(expr.parts.map(inner), " + "));
    case "subtraction":
      return paired(joined([typeset(expr.parts[0], link), inner(expr.parts[1])], " − "));
    case "product":
      return joined(expr.parts.map(inner), " · ");
    case "quotient":
      return make(
        "span",
        { class: "fraction" },
        make("span", {}, typeset(expr.parts[0], link)),
        make("span", { class: "below" }, typeset(expr.parts[1], link)),
      );
    default:
      return called(expr, link);
  }
}

function joined(parts, between) {
  const span = make("span", {});
  parts.forEach((part, at) => {
    span.append(...(at ? [between, part] : [part]));
  });
  return span;
}

/** 1 term, 2 terms. */
export const counted = (terms) => `${terms} ${terms === 1 ? "term" : "terms"}`;

/** A long sum: its sign, how many terms it has, and what they come to. */
function summed(expr) {
  const terms = make("small", {}, counted(expr.parts.length));
  return make("span", { class: "sum" }, make("b", {}, "Σ"), terms, ` ${short(worth(expr))}`);
}

function called(expr, link) {
  const inside = typeset(expr.inside, link);
  if (expr.name === "exp") return make("span", { class: "power" }, "e", make("sup", {}, inside));
  if (expr.name === "sqrt") return make("span", {}, "√", make("span", { class: "root" }, inside));
  return make("span", {}, `${expr.name}(`, inside, ")");
}

/** The sum whose terms are worth a bar each: the expression itself, or what it is divided by. */
export function sumIn(expr) {
  if (expr?.kind === "sum") return expr;
  if (expr?.kind === "quotient") return sumIn(expr.parts[1]);
  return undefined;
}
