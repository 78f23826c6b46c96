// The page: its numbers, and the lens that they are seen through.

import { takeRamps, whenColoursChange } from "./colours.mjs";
import { Blocks } from "./data.mjs";
import { make } from "./elements.mjs";
import { Lens } from "./lens.mjs";
import { copy } from "./save.mjs";

/** What a step is of which nothing else is said. */
const PLAIN = {
  ...{ symbol: "", title: "", formula: "", why: "", form: null, hides: null },
  ...{ axes: [], inputs: [], words: [], edits: [], tables: [] },
};

/** A button for each trace, where they are no layers of one sentence. */
function traceButtons(nav, traces, choose) {
  const layers = new Set(traces.map(({ view }) => view.layer ?? null));
  if (traces.length < 2 || layers.size === traces.length) return;
  nav.append(
    ...traces.map(({ view }, at) => {
      const button = make(
        "button",
        { type: "button", class: view.kind || null, title: view.name, "aria-pressed": "false" },
        make("bdi", {}, view.name),
      );
      button.addEventListener("click", () => choose(at));
      return button;
    }),
  );
  nav.hidden = false;
}

/** The command that explains the number at which a page opens, and a button for each that can be copied. */
function commands(next, command) {
  if (next && command) {
    next.querySelector("code").textContent = command;
    next.hidden = false;
  }
  for (const code of document.querySelectorAll("#finding .command code")) {
    const button = make("button", { type: "button", "aria-label": "Copy the next command" }, "Copy");
    button.addEventListener("click", () => copy(code.textContent));
    code.after(button);
  }
}

async function start() {
  const by = (id) => document.getElementById(id);
  const page = JSON.parse(by("attnctl-report").textContent);
  for (const { view } of page.traces) view.steps = view.steps.map((step) => ({ ...PLAIN, ...step }));
  takeRamps(page.ramps);
  if (page.traces.length) {
    document.querySelector("main").hidden = false;
    const lens = new Lens(page, new Blocks(page.blocks, (number) => by(`b${number}`).textContent), by);
    traceButtons(by("traces"), page.traces, (trace) => lens.lock({ trace }));
    const started = lens.start();
    whenColoursChange(async (toPaper) => {
      await started; // a notebook may say its theme before there is anything to draw again
      lens.redraw(toPaper);
    });
    await started;
    commands(by("next"), lens.opensWith);
  } else commands();
  document.documentElement.dataset.ready = "yes";
}

if (typeof DecompressionStream === "undefined") {
  document.body.append(
    "This browser cannot unpack the page (it has no DecompressionStream); one from 2023 or later can.",
  );
} else {
  start();
}
