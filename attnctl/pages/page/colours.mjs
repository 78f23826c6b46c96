// From numbers to colours: the ramps of attnctl's pictures, on white paper and on black.

const NIGHT = "#1d242d"; // 0 on a dark page
const NOON = "#f1f2f4"; // 0 between two hues on a light one
const BLANK = { light: [229, 232, 235], dark: [51, 56, 62] }; // what is not finite
const STEPS = 255; // shades on either side of 0
const DEPTH = 1e-4; // the least part of the largest number that a logarithm goes down to

const wantsDark = matchMedia("(prefers-color-scheme: dark)");
let dark = wantsDark.matches;
let ramps;

const rgb = (hex) => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));

/** `STEPS` colours through the anchors, after the first. */
function between(anchors) {
  const stops = anchors.map(rgb);
  return Array.from({ length: STEPS }, (_, at) => {
    const where = ((at + 1) / STEPS) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(where));
    return stops[low].map((c, i) => Math.round(c + (where - low) * (stops[low + 1][i] - c)));
  });
}

/** Least first: [red, green, blue] each. */
function ramp(zero, up, down) {
  return [...between([zero, ...down]).reverse(), rgb(zero), ...between([zero, ...up])];
}

/** Take the anchors of the pictures, from 0 to the most: {up, down}. */
export function takeRamps({ up, down }) {
  // On black the palest anchors of both hues would be the same white: what is largest keeps its hue.
  const onBlack = (anchors) => [...anchors].reverse().slice(1, -1);
  ramps = {
    light: ramp(NOON, up, down),
    dark: ramp(NIGHT, onBlack(up), onBlack(down)),
  };
}

/** How numbers are shaded: from 0 to the largest, or to both sides of 0; by logarithm if asked. */
export class Shades {
  constructor(most, { signed = false, log = false } = {}) {
    Object.assign(this, { most: most || 1, signed, log });
  }

  /** The scale of the finite ones among these numbers. */
  static of(values, options) {
    let [most, signed] = [0, false];
    for (const value of values) {
      if (!Number.isFinite(value)) continue;
      if (value < 0) signed = true;
      if (Math.abs(value) > most) most = Math.abs(value);
    }
    return new Shades(most, { signed, ...options });
  }

  /** From −1 to 1. */
  share(value) {
    const share = Math.min(1, Math.abs(value) / this.most);
    const size = this.log ? Math.max(0, 1 - Math.log(share) / Math.log(DEPTH)) : share;
    return value < 0 ? -size : size;
  }

  /** [red, green, blue] of a number; undefined for what is not finite. */
  colour(value) {
    return ramps[dark ? "dark" : "light"][STEPS + Math.round(STEPS * this.share(value))];
  }

  /** Black or white, whichever is read more easily on a number's shade (WCAG 2: relative luminance). */
  ink(value) {
    const shade = this.colour(value);
    if (!shade) return "";
    const linear = shade.map((c) => (c <= 10 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#000" : "#fff";
  }

  /** What stands at the ends of its colour bar. */
  ends() {
    return this.signed ? [-this.most, 0, this.most] : [this.log ? this.most * DEPTH : 0, this.most];
  }
}

/** Where the squares of one side lie in the pixels of another: [first, end) for each pixel. */
function spans(squares, pixels) {
  return Array.from({ length: pixels }, (_, at) => {
    const first = Math.floor((at * squares) / pixels);
    return [first, Math.max(first + 1, Math.ceil(((at + 1) * squares) / pixels))];
  });
}

/** Of the numbers in a rectangle the one that is largest in size, so that none is lost by shrinking. */
function largest(value, [top, bottom], [left, right]) {
  let found = value(top, left);
  for (let row = top; row < bottom; row++) {
    for (let column = left; column < right; column++) {
      const each = value(row, column);
      if (Math.abs(each) > Math.abs(found) || Number.isNaN(found)) found = each;
    }
  }
  return found;
}

/** Draw numbers on a canvas of so many pixels: what falls into one pixel is there by its largest. */
export function paint(canvas, width, height, { rows, columns, value, shades }) {
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(width, height);
  const blank = dark ? BLANK.dark : BLANK.light;
  const across = spans(columns, width);
  let at = 0;
  for (const down of spans(rows, height)) {
    for (const span of across) {
      const shade = shades.colour(largest(value, down, span)) ?? blank;
      image.data.set(shade, at);
      image.data[at + 3] = 255;
      at += 4;
    }
  }
  pen.putImageData(image, 0, 0);
}

/** Call this whenever shades have to be drawn again: light or dark was chosen, or a printer. */
export function whenColoursChange(redraw) {
  let theme; // of the notebook that frames the page, where it says so
  const turned = (toPaper) => () => {
    dark = (theme ? theme === "dark" : wantsDark.matches) && !toPaper;
    document.documentElement.toggleAttribute("data-paper", toPaper);
    redraw(toPaper);
  };
  wantsDark.addEventListener("change", turned(false));
  addEventListener("beforeprint", turned(true));
  addEventListener("afterprint", turned(false));
  addEventListener("message", ({ data }) => {
    if (!["light", "dark"].includes(data?.attnctl)) return;
    theme = data.attnctl;
    document.documentElement.dataset.theme = theme;
    turned(false)();
  });
}

/** A colour of the style sheet as a canvas takes it. */
export function styled(name) {
  const probe = document.documentElement;
  probe.style.outlineColor = `var(${name})`;
  return getComputedStyle(probe).outlineColor;
}
