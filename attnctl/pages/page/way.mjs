// The way from the sentence to the output: a strip of the steps, of which one is open.

import { make } from "./elements.mjs";

/** Whether a step only repeats another: its numbers are those of what it reads. */
function isCopy(step, view) {
  const read = view.steps.find((each) => each.name === step.inputs[0]);
  return step.form?.[0] === "read" && read?.block === step.block;
}

export class Way {
  /** `choose(name)` is called for the step that is wanted. */
  constructor(element, choose) {
    Object.assign(this, { element, choose });
  }

  open(opened) {
    const { view } = opened;
    const marked = opened.marked();
    this.buttons = new Map();
    const chips = [];
    const folded = make("span", { class: "folded" });
    for (const step of view.steps) {
      const button = this.button(step, view);
      if (marked.includes(step.name)) {
        button.classList.add("marked");
        const first = step.name === marked[0] ? view.firstMark : "";
        if (first) button.append(make("em", {}, first));
      }
      this.buttons.set(step.name, button);
      if (step.given && /^(W|b)_/.test(step.name)) folded.append(button);
      else chips.push(...(chips.length ? [make("span", { "aria-hidden": "true" }, "→")] : []), button);
    }
    if (folded.children.length) chips.push(this.fold(folded), folded);
    this.element.replaceChildren(...chips);
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
    const many = folded.children.length;
    const button = make(
      "button",
      { type: "button", class: "fold", "aria-expanded": "false" },
      `weights (${many})`,
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
    const { offsetLeft, offsetWidth } = button;
    const { element } = this;
    if (
      offsetLeft < element.scrollLeft ||
      offsetLeft + offsetWidth > element.scrollLeft + element.clientWidth
    ) {
      element.scrollLeft = offsetLeft - element.clientWidth / 2;
    }
  }
}
