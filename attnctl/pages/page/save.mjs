// What is taken away from the page: a matrix as TSV with every digit, a picture of it as SVG.

import { everyDigit } from "./numbers.mjs";

const SIDE = { most: 36, whole: 720 }; // pixels of a cell, of the longer side of a matrix
const LETTER = 6.6;

/** A cell of a TSV: what would end it is a space. */
const field = (text) => String(text).replace(/[\t\n\r]/g, " ");

/** Rows and columns with their names, every digit. */
export function tsv({ rows, columns, rowNames, columnNames, value }) {
  const lines = [["", ...columnNames.slice(0, columns)].map(field)];
  for (let row = 0; row < rows; row++) {
    const numbers = Array.from({ length: columns }, (_, column) => everyDigit(value(row, column)));
    lines.push([field(rowNames[row]), ...numbers]);
  }
  return `${lines.map((line) => line.join("\t")).join("\n")}\n`;
}

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Text that every reader of XML takes. */
function xml(text) {
  const known = String(text).replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
  return known.replace(/[&<>"]/g, (each) => ENTITIES[each]);
}

/** One matrix as an SVG of its own. */
export function svg(part, title, about) {
  const { rows, columns, rowNames, columnNames, shades, shaded, hiddenBy } = part;
  const side = Math.min(SIDE.most, SIDE.whole / Math.max(rows, part.square ? columns : 1, 1));
  const across = part.square ? side : Math.min(SIDE.most, SIDE.whole / columns);
  const wide = (names) => LETTER * Math.max(1, ...names.map((name) => name.length));
  const [left, slant] = [wide(rowNames) + 14, wide(columnNames) * Math.SQRT1_2 + 10];
  const top = 56 + slant;
  const out = [];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const shade = hiddenBy(row, column) ? undefined : shades.colour(shaded(row, column));
      const [x, y] = [left + column * across, top + row * side].map((at) => at.toFixed(2));
      const fill = shade ? `rgb(${shade})` : "url(#hatch)";
      out.push(
        `<rect x="${x}" y="${y}" width="${across.toFixed(2)}" height="${side.toFixed(2)}" fill="${fill}"/>`,
      );
      if (shade && Math.min(side, across) >= 30) {
        const middle = `x="${(left + (column + 0.5) * across).toFixed(2)}" y="${(top + (row + 0.5) * side + 4).toFixed(2)}"`;
        const ink = shades.ink(shaded(row, column));
        out.push(
          `<text ${middle} fill="${ink}" text-anchor="middle">${xml(part.text(row, column))}</text>`,
        );
      }
    }
  }
  const every = (each) => Math.max(1, Math.ceil(12 / each));
  for (let row = 0; row < rows; row += every(side)) {
    const y = (top + (row + 0.5) * side + 4).toFixed(2);
    out.push(`<text x="${left - 6}" y="${y}" text-anchor="end">${xml(rowNames[row])}</text>`);
  }
  for (let column = 0; column < columns; column += every(across)) {
    const at = `translate(${(left + (column + 0.5) * across).toFixed(2)} ${(top - 6).toFixed(2)}) rotate(-45)`;
    out.push(`<text transform="${at}">${xml(columnNames[column])}</text>`);
  }
  const width = Math.ceil(Math.max(left + columns * across + slant, LETTER * about.length + 24));
  const height = Math.ceil(top + rows * side + 14);
  const hatch =
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" stroke="#999"/></pattern>';
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="11">`,
    `<defs>${hatch}</defs><rect width="100%" height="100%" fill="#fff"/>`,
    `<text x="12" y="24" font-size="16">${xml(title)}</text><text x="12" y="42">${xml(about)}</text>`,
    ...out,
    "</svg>\n",
  ].join("\n");
}

/** Hand a text to the reader as a file. */
export function download(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Put a text on the clipboard, also where a frame may not use the newer way. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
