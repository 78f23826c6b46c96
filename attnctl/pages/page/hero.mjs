// The sentence: each word shaded by the weight it gets, with curves to the strongest.

import { drawn, make, seen } from "./elements.mjs";
import { inColumns } from "./numbers.mjs";

const STRONGEST = 5; // curves from a word
const LEAST = 0.02; // weaker ones are not drawn
const ROOM = { large: 120, least: 84, middle: 400, width: 1000 }; // characters in large and in middle letters

const LONGEST = 40; // letters of a token; its title has all of it

/** A token as people see it: without quotes and the number that tells it from others. */
function plain(word, token) {
  if (!token) return word;
  return token.trim() ? seen(token) : word;
}

/** Cut where it is long. */
function cut(word) {
  const letters = [...word];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : word;
}

/** What a cut token reads in full; nothing where it is shown whole. */
function whole(word, token) {
  const shown = plain(word, token);
  return cut(shown) === shown ? null : shown;
}

export class Hero {
  /** `act(query, key, how)` is called for words that are pointed at, left or chosen. */
  constructor(element, act) {
    Object.assign(this, { element, act });
    this.boxes = new Map(); // where words are, until the sentence is laid out anew
    new ResizeObserver(() => {
      this.boxes.clear();
      this.draw();
    }).observe(element);
  }

  open(opened) {
    this.boxes.clear();
    const [queries, keys] = opened.sides();
    const { tokens, keyTokens, special } = opened.view;
    const same = queries.length === keys.length && queries.every((word, at) => word === keys[at]);
    this.special = new Set(special);
    this.queries = this.line(queries, tokens, same ? "words" : "words from", "query");
    this.keys = same ? this.queries : this.line(keys, keyTokens, "words to", "key");
    for (const key of opened.view.chunks) this.keys.buttons[key]?.classList.add("edge");
    this.curves = drawn("svg", { class: "curves", "aria-hidden": "true" });
    const lines = [this.queries, ...(same ? [] : [this.keys])];
    const length = queries.join(" ").length;
    const scale = Math.min(1, innerWidth / ROOM.width);
    const large = Math.max(ROOM.least, ROOM.large * scale);
    const middle = length <= ROOM.middle * scale ? "middle" : "small";
    // Positions without words are no sentence: they are there to be chosen, not to be read.
    this.element.className = !tokens ? "small plain" : length <= large ? "large" : middle;
    this.element.classList.toggle("two", !same);
    this.element.hidden = !queries.length;
    this.element.replaceChildren(this.curves, ...lines.map(({ line }) => line));
  }

  line(words, tokens, kind, side) {
    const buttons = words.map((word, at) => {
      const button = make(
        "button",
        { type: "button", class: "word", tabindex: at ? -1 : 0, title: whole(word, tokens?.[at]) },
        make("bdi", {}, cut(plain(word, tokens?.[at]))),
        make("small", { "aria-hidden": "true" }),
      );
      if (this.special.has(at)) button.classList.add("special");
      return button;
    });
    const line = make("div", { class: kind, role: "group", "aria-label": `${side} tokens` }, ...buttons);
    const at = (event) => buttons.indexOf(event.target.closest(".word"));
    const tell = (how) => (event) => {
      if (at(event) >= 0) this.act(side, at(event), how);
    };
    line.addEventListener("pointerover", tell("look"));
    line.addEventListener("focusin", tell("look"));
    line.addEventListener("click", tell("lock"));
    line.addEventListener("pointerleave", () => this.act(side, -1, "leave"));
    line.addEventListener("focusout", () => this.act(side, -1, "leave"));
    line.addEventListener("keydown", (event) => {
      const to = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = Math.max(0, Math.min(buttons.length - 1, at(event) + to));
      for (const [each, button] of buttons.entries()) button.tabIndex = each === next ? 0 : -1;
      buttons[next].focus();
    });
    return { line, buttons };
  }

  /** Show what a query gives to each key. */
  show({ query, key, weights, also, shades, label }) {
    this.shown = { query, key, weights, also };
    const strongest = strongestOf(weights);
    if (weights[key] && !strongest.includes(key)) strongest.push(key);
    this.strongest = strongest;
    this.keys.buttons.forEach((button, at) => {
      const shade = shades.colour(weights[at]);
      const shown = shade && weights[at] >= LEAST;
      button.style.backgroundColor = shown ? `rgb(${shade})` : "";
      button.style.color = shown ? shades.ink(weights[at]) : "";
      button.lastChild.textContent = strongest.includes(at) ? inColumns(weights[at]) : "";
      button.classList.toggle("key", at === key);
    });
    this.queries.buttons.forEach((button, at) => {
      button.classList.toggle("query", at === query);
      button.ariaPressed = String(at === query);
    });
    this.element.title = label;
    if (this.element.classList.contains("small")) this.reveal(this.queries.buttons[query]);
    this.draw();
  }

  /** Scroll a long sentence to a word. */
  reveal({ offsetTop, offsetHeight }) {
    const { scrollTop, clientHeight } = this.element;
    if (offsetTop < scrollTop || offsetTop + offsetHeight > scrollTop + clientHeight) {
      this.element.scrollTop = offsetTop - clientHeight / 2;
    }
  }

  /** Where a word is in the sentence. */
  box(button) {
    if (!this.boxes.has(button)) {
      const frame = this.element.getBoundingClientRect();
      const { left, top, width, bottom } = button.getBoundingClientRect();
      const up = frame.top - this.element.scrollTop;
      this.boxes.set(button, {
        x: left - frame.left + width / 2,
        top: top - up,
        bottom: bottom - up,
      });
    }
    return this.boxes.get(button);
  }

  draw() {
    if (!this.shown || this.element.hidden) return;
    const { query, weights, key, also } = this.shown;
    const box = (button) => this.box(button);
    const thick = this.element.classList.contains("small") ? 1.5 : 6;
    const from = box(this.queries.buttons[query]);
    const path = (given, most, kind) => (at) =>
      drawn("path", {
        d: curve(from, box(this.keys.buttons[at])),
        class: kind(at),
        "stroke-width": (1.2 + thick * given[at]).toFixed(1),
        "stroke-opacity": (0.35 + 0.6 * Math.min(1, given[at] / (most || 1))).toFixed(2),
      });
    const paths = this.strongest.map(
      path(weights, weights[this.strongest[0]], (at) => (at === key ? "here" : null)),
    );
    const second = also ? strongestOf(also) : [];
    paths.push(...second.map(path(also, also?.[second[0]], () => "also")));
    this.curves.replaceChildren(...paths);
  }
}

/** The keys that get most, as many as are drawn. */
function strongestOf(weights) {
  const strong = [...weights.keys()].filter((at) => weights[at] >= LEAST);
  return strong.sort((a, b) => weights[b] - weights[a]).slice(0, STRONGEST);
}

/** A curve from one word to another: over the line where both stand on it, else between the lines. */
function curve(from, to) {
  if (from.bottom <= to.top || to.bottom <= from.top) {
    const down = to.top > from.top;
    const [y1, y2] = down ? [from.bottom, to.top] : [from.top, to.bottom];
    const middle = (y1 + y2) / 2;
    return `M${from.x},${y1}C${from.x},${middle} ${to.x},${middle} ${to.x},${y2}`;
  }
  const wide = Math.abs(to.x - from.x);
  const rise = Math.min(from.top - 3, wide ? 18 + wide * 0.16 : 26);
  const side = wide ? 0 : 13;
  const top = from.top - rise * 1.3;
  return `M${from.x - side},${from.top}C${from.x - side},${top} ${to.x + side},${top} ${to.x + side},${to.top}`;
}
