// The page: heads to choose from, traces to open, and the derivation of the one that is open.

import { whenColoursChange } from "./colours.mjs";
import { Blocks } from "./data.mjs";
import { Derivation } from "./derivation.mjs";
import { make } from "./elements.mjs";
import { Overview, WEIGHTS } from "./overview.mjs";
import { Panel } from "./panel.mjs";

/** A box for each head, which takes the head off the page and puts it back. */
function headBoxes(fieldset, count) {
  const off = new Set();
  const apply = () => {
    for (const each of document.querySelectorAll("[data-head]")) {
      if (Number(each.dataset.heads) === count) each.hidden = off.has(Number(each.dataset.head));
    }
  };
  const boxes = Array.from({ length: count }, (_, head) => {
    const box = make("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => {
      off[box.checked ? "delete" : "add"](head);
      apply();
    });
    return make("label", {}, box, ` ${head}`);
  });
  fieldset.replaceChildren(make("legend", {}, "heads"), ...boxes);
  fieldset.hidden = count < 2;
  return apply;
}

async function start() {
  const page = JSON.parse(document.getElementById("attnctl-report").textContent);
  const by = (id) => document.getElementById(id);
  const blocks = new Blocks(page.blocks, (number) => by(`b${number}`).textContent);
  const main = by("derivation");
  let open;
  let applyHeads = () => {};
  const panel = new Panel(by("arithmetic"), (operand) => open.follow(operand));
  const openTrace = async (number) => {
    const trace = page.traces[number];
    const next = new Derivation(trace, blocks, page.words, panel, main);
    await next.open();
    open = next;
    overview?.chosen(number);
    const { view } = trace;
    by("facts").textContent = [page.traces.length > 1 ? view.name : "", ...view.facts]
      .filter(Boolean)
      .join(" · ");
    by("notes").replaceChildren(...view.notes.map((note) => make("li", {}, note)));
    const heads = view.steps.find((step) => step.name === WEIGHTS)?.shape.at(-3) ?? 1;
    applyHeads = headBoxes(by("heads"), heads);
  };
  const overview =
    page.traces.length > 1 ? new Overview(page.traces, blocks, by("overview"), openTrace) : undefined;
  whenColoursChange(() => {
    open?.redraw();
    overview?.redraw();
  });
  if (page.traces.length) await openTrace(page.open ?? 0);
  await overview?.build();
  overview?.chosen(page.open ?? 0);
  applyHeads();
  document.documentElement.dataset.ready = "yes";
}

if (typeof DecompressionStream === "undefined") {
  document.getElementById("derivation").textContent =
    "This browser cannot unpack the page (it has no DecompressionStream); one from 2023 or later can.";
} else {
  start();
}
