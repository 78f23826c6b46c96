// The way from the sentence to the output: a strip of the steps, of which one is open; below it the way back.

import { make } from "./elements.mjs";

/** Whether a step only repeats another: its numbers are those of what it reads. */
function isCopy(step, view) {
  const read = view.steps.find((each) => each.name === step.inputs[0]);
  return step.form?.[0] === "read" && read?.block === step.block;
}

/** What stands between a step and the one before it. */
const arrow = (chips, sign) => (chips.length ? [make("span", { "aria-hidden": "true" }, sign)] : []);

export class Way {
  /** `choose(name)` is called for the step that is wanted. */
  constructor(element, choose) {
    Object.assign(this, { element, choose });
  }

  open(opened) {
    const { view } = opened;
    const marked = opened.marked();
    const means = view.panels?.delta ? ["first that differs", "differs"] : ["first wrong", "wrong"];
    this.buttons = new Map();
    const chips = [];
    const back = [];
    const folded = make("span", { class: "folded" });
    for (const step of view.steps) {
      const button = this.button(step, view);
      if (marked.includes(step.name)) {
        button.classList.add(view.panels?.delta ? "differs" : "marked");
        if (step.name === marked[0]) button.append(make("em", {}, means[0]));
      }
      this.buttons.set(step.name, button);
      if (step.given && /^(W|b)_/.test(step.name)) folded.append(button);
      else if (step.gradient) back.push(...arrow(back, "←"), button);
      else chips.push(...arrow(chips, "→"), button);
    }
    if (marked.length > 1) {
      chips.push(
        make(
          "span",
          { class: "legend" },
          make("i", { class: `swatch ${view.panels?.delta ? "also" : "wrong"}` }),
          ` ${means[1]}`,
        ),
      );
    }
    if (folded.children.length) chips.push(this.fold(folded), folded);
    const row = (kind, parts) => make("div", { class: kind }, ...parts);
    const rows = back.length ? [row("back", back.reverse())] : []; // to the left, as it goes
    this.element.replaceChildren(row("forth", chips), ...rows);
  }

  button(step, view) {
    const copy = isCopy(step, view);
    const button = make(
      "button",
      { type: "button", class: copy ? "step copy" : "step", title: step.title },
      make("code", {}, step.name),
    );
    if (copy) button.append(make("small", {}, `= ${step.inputs[0]}`));
    button.addEventListener("click", () => this.choose(step.name));
    return button;
  }

  /** The button that shows and folds the weights and biases. */
  fold(folded) {
    const names = [...folded.children].map((button) => button.textContent);
    const biases = names.filter((name) => name.startsWith("b_")).length;
    const both = biases < names.length ? "weights and biases" : "biases";
    const button = make(
      "button",
      { type: "button", class: "fold", "aria-expanded": "false" },
      `${biases ? both : "weight matrices"} (${names.length})`,
    );
    folded.hidden = true;
    button.addEventListener("click", () => {
      folded.hidden = !folded.hidden;
      button.ariaExpanded = String(!folded.hidden);
    });
    this.folded = { folded, button };
    return button;
  }

  show(name) {
    for (const [step, button] of this.buttons) {
      if (step === name) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
    const button = this.buttons.get(name);
    if (button?.parentElement.hidden) this.folded.button.click();
    const row = button.closest("div");
    const [own, frame] = [button, row].map((each) => each.getBoundingClientRect());
    if (own.left < frame.left || own.right > frame.right) {
      row.scrollLeft += own.left - frame.left - frame.width / 2;
    }
  }
}
