// Queries and keys joined by lines, each as wide as the weight.

import { drawn } from "./elements.mjs";

export const MOST_JOINED = 32; // tokens of a side
const ROW = 20;
const [LEFT, RIGHT, WIDTH] = [92, 188, 280];
const LEAST = 0.005; // narrower lines cannot be seen
const WIDEST = 7;

const cut = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name);

/** A picture of one head: `weight(query, key)` is the width of the line between them. */
export function linesFor(queries, keys, weight, label) {
  const height = Math.max(queries.length, keys.length) * ROW + 4;
  const middle = (at) => at * ROW + ROW / 2 + 2;
  const picture = drawn("svg", {
    viewBox: `0 0 ${WIDTH} ${height}`,
    width: WIDTH,
    height,
    role: "img",
    "aria-label": `${label}: tokens joined by lines as wide as the weight`,
  });
  queries.forEach((name, query) => {
    const line = { class: `of query-${query}` };
    picture.append(drawn("text", { x: LEFT - 6, y: middle(query), class: "from" }, cut(name)));
    keys.forEach((_, key) => {
      const size = weight(query, key);
      if (!(size >= LEAST)) return;
      const ends = { x1: LEFT, y1: middle(query), x2: RIGHT, y2: middle(key) };
      picture.append(drawn("line", { ...line, ...ends, "stroke-width": (size * WIDEST).toFixed(2) }));
    });
  });
  keys.forEach((name, key) => {
    picture.append(drawn("text", { x: RIGHT + 6, y: middle(key), class: "to" }, cut(name)));
  });
  return picture;
}

/** Only the lines of one query stand out; of all where it is undefined. */
export function lightLines(picture, query) {
  for (const line of picture.querySelectorAll("line")) {
    line.classList.toggle("faint", query !== undefined && !line.classList.contains(`query-${query}`));
  }
}
