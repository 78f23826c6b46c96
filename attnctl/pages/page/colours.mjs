// One hue for what is never negative, two for what is: lightness falls (in the dark: rises) all the way.

const LIGHT = {
  paper: [1, 0, 0],
  most: [0.38, -0.02, -0.15],
  least: [0.42, 0.1, 0.08],
};
const DARK = {
  paper: [0.2, 0, -0.01],
  most: [0.83, -0.03, -0.1],
  least: [0.82, 0.06, 0.1],
};

const BLANK = { light: [229, 232, 235], dark: [51, 56, 62] }; // what is not finite

const dark = matchMedia("(prefers-color-scheme: dark)");
let palette = dark.matches ? DARK : LIGHT;

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

const STEPS = 255; // shades on either side of 0

/** The shades of a palette, least first: [red, green, blue] each. */
function ramp({ paper, most, least }) {
  return Array.from({ length: 2 * STEPS + 1 }, (_, at) => {
    const end = at < STEPS ? least : most;
    const part = Math.abs(at - STEPS) / STEPS;
    return rgb(paper.map((c, i) => c + part * (end[i] - c)));
  });
}

const RAMPS = new Map([LIGHT, DARK].map((each) => [each, ramp(each)]));

/** How the numbers of a step are shaded: from 0 to the largest, or to both sides of 0. */
export class Shades {
  constructor(values) {
    let most = 0;
    for (const value of values) {
      const size = Math.abs(value);
      if (size > most && size < Number.POSITIVE_INFINITY) most = size;
    }
    this.most = most || 1;
  }

  /** [red, green, blue] of a number; null for what is not finite. */
  of(value) {
    const at = STEPS + Math.round((STEPS * value) / this.most);
    return RAMPS.get(palette)[at] ?? null;
  }

  /** Black or white, whichever is read more easily on a number's shade (WCAG 2: relative luminance). */
  text(value) {
    const shade = this.of(value);
    if (!shade) return "";
    const linear = shade.map((c) => (c <= 10 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    return luminance > 0.179 ? "#000" : "#fff";
  }

  /** Draw numbers on a canvas, a pixel for each: `value(at)` is that of pixel `at`. */
  draw(canvas, rows, columns, value) {
    canvas.width = columns;
    canvas.height = rows;
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(columns, rows);
    const { data } = image;
    const blank = palette === DARK ? BLANK.dark : BLANK.light;
    for (let at = 0; at < rows * columns; at++) {
      const [red, green, blue] = this.of(value(at)) ?? blank;
      data[4 * at] = red;
      data[4 * at + 1] = green;
      data[4 * at + 2] = blue;
      data[4 * at + 3] = 255;
    }
    pen.putImageData(image, 0, 0);
  }
}

/** Call this whenever shades have to be drawn again: light or dark was chosen, or a printer. */
export function whenColoursChange(redraw) {
  const turned = (toPaper) => () => {
    palette = dark.matches && !toPaper ? DARK : LIGHT;
    redraw();
  };
  dark.addEventListener("change", turned(false));
  addEventListener("beforeprint", turned(true));
  addEventListener("afterprint", turned(false));
}

/** A colour of the style sheet, for what is drawn. */
export function styled(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}
