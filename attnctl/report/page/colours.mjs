// One hue for what is never negative, two for what is: lightness falls (in the dark: rises) all the way.

const LIGHT = { paper: [1, 0, 0], most: [0.38, -0.02, -0.15], least: [0.42, 0.1, 0.08], text: [0, 0, 0], over: [1, 0, 0] };
const DARK = { paper: [0.2, 0, -0.01], most: [0.83, -0.03, -0.1], least: [0.82, 0.06, 0.1], text: [0.95, 0, 0], over: [0, 0, 0] };

const dark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function palette() {
  return dark.matches && !printing ? DARK : LIGHT;
}

/** sRGB from OKLab (Ottosson 2020). */
function rgb([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((c) => {
    const clipped = Math.min(1, Math.max(0, c));
    const curved = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
    return Math.round(255 * curved);
  });
}

/** How the numbers of a step are shaded: from 0 to the largest, or to both sides of 0. */
export class Shades {
  constructor(values) {
    let [low, high] = [0, 0];
    for (const value of values) {
      if (Number.isFinite(value)) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    this.most = Math.max(-low, high) || 1;
    this.table = new Map();
  }

  /** [red, green, blue] of a number; none for what is not finite. */
  of(value) {
    if (!Number.isFinite(value)) return null;
    const { paper, most, least } = palette();
    const at = Math.round((255 * value) / this.most);
    const key = palette() === DARK ? at + 1024 : at;
    if (!this.table.has(key)) {
      const end = at < 0 ? least : most;
      const part = Math.abs(at) / 255;
      this.table.set(key, rgb(paper.map((c, i) => c + part * (end[i] - c))));
    }
    return this.table.get(key);
  }

  /** The colour of digits on a number's shade. */
  text(value) {
    const { text, over } = palette();
    const part = Math.abs(value) / this.most;
    const deep = Number.isFinite(value) && part > (palette() === DARK ? 0.58 : 0.68);
    return `rgb(${rgb(deep ? over : text)})`;
  }
}

/** Call this whenever shades have to be drawn again: light or dark was chosen, or a printer. */
export function whenColoursChange(redraw) {
  dark.addEventListener("change", redraw);
  for (const [event, state] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      printing = state;
      redraw();
    });
  }
}

/** A colour of the style sheet, for what is drawn. */
export function styled(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}
