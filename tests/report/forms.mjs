// node forms.mjs PACKAGE < CASES: of each case its form filled in at every cell, as JSON.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(`${process.argv[2]}/${name}.mjs`));
const [{ filled }, { Numbers }] = await Promise.all([load("arithmetic"), load("data")]);

/** Infinity and NaN as words, which JSON has no numbers for. */
const words = (_, value) => (typeof value === "number" && !Number.isFinite(value) ? String(value) : value);

const out = JSON.parse(readFileSync(0, "utf8")).map(({ form, arrays, cells }) => {
  const held = arrays.map(({ values, shape }) => new Numbers(values.map(Number), shape));
  const [read, table] = [(input, cell) => held[input].at(cell), (number) => held[number]];
  return cells.map((cell) => filled(form, cell, read, table));
});
process.stdout.write(JSON.stringify(out, words));
