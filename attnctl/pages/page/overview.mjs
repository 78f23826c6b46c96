// Each head of each layer in little.

import { Shades } from "./colours.mjs";
import { leading } from "./data.mjs";
import { make } from "./elements.mjs";

export const WEIGHTS = "attention_weights";

/** Each head of each layer in little; a click opens the layer. */
export class Overview {
  constructor(traces, blocks, element, open) {
    Object.assign(this, { traces, blocks, element, open });
    this.buttons = [];
    this.drawings = [];
  }

  async build() {
    this.element.hidden = false;
    for (const [at, trace] of this.traces.entries()) {
      const weights = trace.view.steps.find((step) => step.name === WEIGHTS);
      const name = trace.view.name;
      const button = make("button", { type: "button", "aria-pressed": "false" }, make("span", {}, name));
      button.addEventListener("click", () => this.open(at));
      this.buttons.push(button);
      this.element.append(button);
      if (weights) await this.thumbnails(button, weights);
      await new Promise((done) => setTimeout(done));
    }
  }

  async thumbnails(button, step) {
    const array = await this.blocks.get(step.block);
    const shades = new Shades(array.values);
    const canvases = leading(step.shape).map((lead) => {
      const canvas = make("canvas", { "data-head": lead.at(-1), "data-heads": step.shape.at(-3) });
      this.drawings.push(() => this.draw(canvas, array, shades, lead));
      this.drawings.at(-1)();
      return canvas;
    });
    button.append(make("span", { class: "thumbnails", "aria-hidden": "true" }, ...canvases));
  }

  draw(canvas, array, shades, lead) {
    const [rows, columns] = array.shape.slice(-2);
    const start = array.offset([...lead, 0, 0]);
    shades.draw(canvas, rows, columns, (at) => array.values[start + at]);
  }

  redraw() {
    for (const draw of this.drawings) draw();
  }

  chosen(number) {
    this.buttons.forEach((button, at) => {
      button.setAttribute("aria-pressed", String(at === number));
    });
  }
}
