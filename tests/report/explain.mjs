// node explain.mjs PACKAGE MOST PAGE...: for each page, each trace and each step what the page says of
// its cells, as JSON lines: {page, trace, step, cell, symbols, figures, notes, why}.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, most, ...pages] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/${name}.mjs`));
const [{ Blocks }, { Explained }] = await Promise.all([load("data"), load("explain")]);

function* cells(shape) {
  if (!shape.length) yield [];
  else for (let at = 0; at < shape[0]; at++) for (const rest of cells(shape.slice(1))) yield [at, ...rest];
}

for (const [number, path] of pages.entries()) {
  const text = readFileSync(path, "utf8");
  const page = JSON.parse(text.match(/id="attnctl-report">([^<]*)</)[1]);
  const blocks = new Blocks(page.blocks, (at) => text.match(new RegExp(`id="b${at}">([^<]*)<`))[1]);
  const every = await Promise.all(page.blocks.map((_, at) => blocks.get(at)));
  const tables = new Map(every.map((array, at) => [at, array]));
  for (const [trace, { view }] of page.traces.entries()) {
    const arrays = new Map(view.steps.map((step) => [step.name, every[step.block]]));
    const explained = new Explained(view, arrays, tables, page.words);
    for (const step of view.steps) {
      for (const cell of cells(step.shape)) {
        const said = explained.explain(step.name, cell, Number(most));
        const { figures, notes, why } = said;
        const symbols = said.operands.length ? said.symbols : null;
        const found = { page: number, trace, step: step.name, cell, symbols, figures, notes, why };
        process.stdout.write(`${JSON.stringify(found)}\n`);
      }
    }
  }
}
