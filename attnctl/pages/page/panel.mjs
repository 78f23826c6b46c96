// The arithmetic of the cell under the cursor, with a button for each cell that it came from.

import { make } from "./elements.mjs";

const MOST_BUTTONS = 12;

export class Panel {
  constructor(element, follow) {
    this.element = element;
    this.follow = follow;
    this.most = 12;
    this.full = make("button", { type: "button", "aria-pressed": "false" }, "every term");
    this.full.addEventListener("click", () => {
      this.most = this.most ? 0 : 12;
      this.full.setAttribute("aria-pressed", String(!this.most));
      this.again?.();
    });
  }

  /** Show what was found of a cell; `again` explains it anew. */
  show(found, more, again) {
    this.again = again;
    const start = `${found.name} = `;
    const lines = [];
    if (found.operands.length) lines.push(make("p", { class: "equation symbols" }, start + found.symbols));
    lines.push(make("p", { class: "equation figures" }, start + found.figures.join(" = ")));
    const notes = [...found.notes, ...more, ...(found.why ? [found.why] : [])];
    lines.push(...notes.map((note) => make("p", { class: "note" }, note)));
    const buttons = found.operands.slice(0, MOST_BUTTONS).map((operand) => {
      const button = make("button", { type: "button" }, operand.name);
      button.addEventListener("click", () => this.follow(operand));
      return button;
    });
    const rest = found.operands.length - buttons.length;
    if (rest > 0) buttons.push(make("span", {}, `… ${rest} more`));
    if (found.cut || !this.most) buttons.push(this.full);
    this.element.replaceChildren(
      make("h2", {}, make("code", {}, found.step), ` ${found.title}`),
      make("div", { class: "said", "aria-live": "polite" }, ...lines),
      make("div", { class: "operands", role: "group", "aria-label": "cells it came from" }, ...buttons),
    );
  }
}
