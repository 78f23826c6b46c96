// A matrix: a table of numbers where it is small, a picture of them where it is not.

import { paint, styled } from "./colours.mjs";
import { make } from "./elements.mjs";

const SQUARE = { least: 16, number: 52, most: 120, many: 24 }; // pixels of a cell of a table; cells of a side

const CELL = { most: 26, apart: 12 }; // pixels of a cell of a picture, and between two of its labels
const SLANT = Math.SQRT1_2;
const LETTER = 6.6; // pixels that a letter is wide, about
const DIGIT = 0.62; // the width of a digit in parts of its height
const LONGEST = 12; // letters of a label

/** From where to where in a cell the stroke of each rule goes. */
const STRIKES = [
  [
    [0, 1],
    [1, 0],
  ],
  [
    [0, 0],
    [1, 1],
  ],
  [
    [0, 0.5],
    [1, 0.5],
  ],
  [
    [0.5, 0],
    [0.5, 1],
  ],
];

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

const short = (name) => (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);
const widest = (names) => LETTER * Math.max(1, ...names.map((name) => short(name).length));

/** Where a key takes the cell (row, column), or undefined. */
function moved(key, [row, column], rows, columns) {
  if (key === "Home") return [row, 0];
  if (key === "End") return [row, columns - 1];
  const by = ARROWS[key];
  if (!by) return undefined;
  const [down, right] = [row + by[0], column + by[1]];
  return down >= 0 && down < rows && right >= 0 && right < columns ? [down, right] : [row, column];
}

/** Where the pointer was last: a page that moves under a pointer that rests is not pointed at. */
const pointer = { x: 0, y: 0 };

/** What both kinds have: how a key or the pointer reaches the cells. */
class Matrix {
  /**
   * `part` is {label, rows, columns, rowNames, columnNames, value, text, hiddenBy, rules, wrong,
   * edges, shades, shaded};
   * `act(matrix, place, how)` is called for cells that are pointed at, left, moved to or chosen.
   */
  constructor(part, act) {
    Object.assign(this, { part, act, place: [0, 0] });
  }

  /** The names of its columns stand slanted where they are wider than their column. */
  slanted(cell) {
    return widest(this.part.columnNames) + 4 > cell;
  }

  /** Pixels above the matrix and to its left that the labels take. */
  margins(cell) {
    const { rowNames, columnNames } = this.part;
    return {
      left: Math.ceil(widest(rowNames) + 10),
      top: this.slanted(cell) ? Math.ceil(widest(columnNames) * SLANT + 12) : 20,
      right: this.slanted(cell) ? Math.ceil(widest(columnNames) * SLANT) : 0,
    };
  }

  listen() {
    const { element } = this;
    element.addEventListener("keydown", (event) => this.pressed(event));
    element.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      if (event.clientX === pointer.x && event.clientY === pointer.y) return;
      [pointer.x, pointer.y] = [event.clientX, event.clientY];
      const place = this.under(event);
      if (place) this.act(this, place, "look");
    });
    element.addEventListener("pointerleave", () => this.act(this, this.place, "leave"));
    element.addEventListener("click", (event) => {
      const place = this.under(event);
      if (place) this.act(this, place, "lock");
    });
  }

  pressed(event) {
    const to = moved(event.key, this.place, this.part.rows, this.part.columns);
    const how = to ? "move" : { Enter: "follow", Backspace: "back" }[event.key];
    if (!how) return;
    event.preventDefault();
    if (to) this.put(to);
    this.act(this, this.place, how);
  }

  /** What is said of a cell. */
  said([row, column]) {
    const { part } = this;
    const rule = part.hiddenBy(row, column);
    const end = rule ? `, hidden by ${rule}` : "";
    return `${part.rowNames[row]}, ${part.columnNames[column]}: ${part.text(row, column)}${end}`;
  }
}

/** A small matrix: a grid of numbers. */
class TableMatrix extends Matrix {
  build({ width, height }) {
    const { part } = this;
    const fit = ({ left, right, top }) =>
      Math.floor(Math.min((width - left - right) / part.columns, (height - top) / part.rows));
    const square = fit(this.margins(fit(this.margins(SQUARE.most))));
    this.square = Math.max(SQUARE.least, Math.min(SQUARE.most, square));
    const room = Math.floor((width - this.margins(this.square).left) / part.columns);
    this.wide = part.square ? this.square : Math.max(this.square, Math.min(SQUARE.number, room));
    const margin = this.margins(this.wide);
    const texts = Array.from({ length: part.rows * part.columns }, (_, at) =>
      part.text(Math.floor(at / part.columns), at % part.columns),
    );
    this.letters = Math.max(11, Math.min(20, this.square * 0.24));
    const longest = Math.max(...texts.map((text) => text.length));
    this.written = longest * this.letters * DIGIT <= this.wide - 2;
    const name = (text, scope) =>
      make("th", { scope, title: short(text) === text ? null : text }, make("span", {}, short(text)));
    this.cells = Array.from({ length: part.rows }, (_, row) =>
      Array.from({ length: part.columns }, (_, column) => this.td(row, column)),
    );
    this.element = make(
      "table",
      { role: "grid", "aria-label": part.label, class: this.slanted(this.wide) ? "slanted" : null },
      make(
        "thead",
        {},
        make("tr", {}, make("td", {}), ...part.columnNames.map((each) => name(each, "col"))),
      ),
      make(
        "tbody",
        {},
        ...this.cells.map((cells, row) => make("tr", {}, name(part.rowNames[row], "row"), ...cells)),
      ),
    );
    const { style } = this.element;
    style.setProperty("--square", `${this.square}px`);
    style.setProperty("--wide", `${this.wide}px`);
    style.fontSize = `${this.letters}px`;
    style.setProperty("--left", `${margin.left}px`);
    style.setProperty("--top", `${margin.top}px`);
    style.marginRight = `${margin.right}px`;
    this.cells[0][0].tabIndex = 0;
    this.listen();
    return this.element;
  }

  under(event) {
    const td = event.target.closest("tbody td");
    return td ? [td.parentElement.sectionRowIndex, td.cellIndex - 1] : undefined;
  }

  td(row, column) {
    const { part } = this;
    const rule = part.hiddenBy(row, column);
    const td = make("td", { tabindex: -1 });
    const value = part.value(row, column);
    const text = part.text(row, column);
    if (rule || !this.written) td.ariaLabel = rule ? `hidden by ${rule}` : text;
    else td.textContent = text;
    if (rule) {
      td.className = `hidden hatch${part.rules.indexOf(rule)}`;
      td.title = `hidden by ${rule}`;
    } else {
      const shade = part.shades.colour(part.shaded(row, column));
      td.style.backgroundColor = shade ? `rgb(${shade})` : "";
      td.style.color = part.shades.ink(part.shaded(row, column));
    }
    if (part.wrong(row, column)) td.classList.add("wrong");
    if (part.edges.includes(column)) td.classList.add("edge");
    if (Number.isNaN(value)) td.classList.add("blank");
    td.addEventListener("focus", () => {
      if (this.place[0] === row && this.place[1] === column) return;
      this.put([row, column]);
      this.act(this, [row, column], "move");
    });
    return td;
  }

  /** Stand on a cell: it is the one that Tab reaches. */
  stand([row, column]) {
    this.cells[this.place[0]][this.place[1]].tabIndex = -1;
    this.place = [row, column];
    this.cells[row][column].tabIndex = 0;
  }

  put(to) {
    this.stand(to);
    this.cells[to[0]][to[1]].focus({ preventScroll: true });
    this.cells[to[0]][to[1]].scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  mark(place, kind) {
    this.cells[place[0]][place[1]].classList.add(kind);
    if (kind !== "here") return;
    this.element.tHead.rows[0].cells[place[1] + 1].classList.add("here");
    this.element.tBodies[0].rows[place[0]].cells[0].classList.add("here");
  }

  clear() {
    for (const cell of this.element.querySelectorAll(".lit, .here")) cell.classList.remove("lit", "here");
  }
}

/** A large matrix: a picture with a square for each number, and what is marked drawn above it. */
class PictureMatrix extends Matrix {
  build({ width, height }) {
    const { part } = this;
    const label = this.margins(0);
    const across = (width - label.left - label.right) / part.columns;
    const down = (height - label.top) / part.rows;
    const [x, y] = [across, down].map((each) => Math.min(CELL.most, each));
    const side = Math.min(x, y);
    this.size = part.square ? [side, side] : [x, Math.min(y, 20)];
    this.label = this.margins(this.size[0]);
    this.reader = make("div", { role: "gridcell", id: `cell-${part.id}` });
    const picture = make("canvas", { "aria-hidden": "true" });
    const marks = make("canvas", { class: "marks", "aria-hidden": "true" });
    this.element = make(
      "div",
      {
        class: "picture",
        tabindex: 0,
        role: "grid",
        "aria-label": part.label,
        "aria-rowcount": part.rows,
        "aria-colcount": part.columns,
        "aria-activedescendant": `cell-${part.id}`,
      },
      picture,
      marks,
      make("div", { role: "row", class: "unseen" }, this.reader),
    );
    this.scale = devicePixelRatio || 1;
    const whole = [
      this.label.left + part.columns * this.size[0] + this.label.right,
      this.label.top + part.rows * this.size[1] + 3,
    ];
    for (const canvas of [picture, marks]) {
      [canvas.width, canvas.height] = whole.map((each) => Math.round(each * this.scale));
      canvas.style.width = `${canvas.width / this.scale}px`;
      canvas.style.height = `${canvas.height / this.scale}px`;
    }
    this.pen = picture.getContext("2d");
    this.marker = marks.getContext("2d");
    for (const pen of [this.pen, this.marker]) pen.scale(this.scale, this.scale);
    this.draw();
    this.listen();
    this.element.addEventListener("focus", () => this.act(this, this.place, "move"));
    return this.element;
  }

  under(event) {
    const box = this.element.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.label.left) / this.size[0]);
    const row = Math.floor((event.clientY - box.top - this.label.top) / this.size[1]);
    const inside = row >= 0 && column >= 0 && row < this.part.rows && column < this.part.columns;
    return inside ? [row, column] : undefined;
  }

  stand(place) {
    this.place = place;
    this.reader.ariaLabel = this.said(place);
    this.reader.ariaColIndex = place[1] + 1;
    this.reader.parentElement.ariaRowIndex = place[0] + 1;
  }

  put(to) {
    this.stand(to);
    this.element.focus({ preventScroll: true });
  }

  draw() {
    const { part, pen, label } = this;
    const [width, height] = [part.columns * this.size[0], part.rows * this.size[1]];
    const pixels = document.createElement("canvas");
    const [across, down] = [width, height].map((each) => Math.max(1, Math.round(each * this.scale)));
    paint(pixels, across, down, { ...part, value: part.shaded });
    pen.imageSmoothingEnabled = false;
    pen.drawImage(pixels, label.left, label.top, width, height);
    this.letter();
    const large = Math.min(...this.size) >= 5;
    for (let row = 0; row < part.rows; row++) {
      for (let column = 0; column < part.columns; column++) {
        const rule = large && part.hiddenBy(row, column);
        if (rule) this.strike(row, column, part.rules.indexOf(rule));
        if (part.wrong(row, column)) this.fence(row, column);
      }
    }
    pen.fillStyle = styled("--ink");
    for (const column of part.edges) {
      pen.fillRect(label.left + column * this.size[0] - 1, label.top, 2, height);
    }
    pen.strokeStyle = styled("--frame");
    pen.lineWidth = 1;
    pen.strokeRect(label.left - 0.5, label.top - 0.5, width + 1, height + 1);
  }

  /** Frame what is wrong where it borders on what is not: cells side by side have one frame. */
  fence(row, column) {
    const { part, pen, label, size } = this;
    const inside = (down, across) =>
      down >= 0 && across >= 0 && down < part.rows && across < part.columns && part.wrong(down, across);
    const [left, top] = [label.left + column * size[0], label.top + row * size[1]];
    const [right, bottom] = [left + size[0], top + size[1]];
    const sides = [
      [row - 1, column, left, top, right, top],
      [row + 1, column, left, bottom, right, bottom],
      [row, column - 1, left, top, left, bottom],
      [row, column + 1, right, top, right, bottom],
    ];
    pen.strokeStyle = styled("--wrong");
    pen.lineWidth = 2;
    pen.beginPath();
    for (const [down, across, ...line] of sides) {
      if (inside(down, across)) continue;
      pen.moveTo(line[0], line[1]);
      pen.lineTo(line[2], line[3]);
    }
    pen.stroke();
  }

  /** Hatch a cell: each rule in its own direction, as the legend has it. */
  strike(row, column, rule) {
    const { pen, label, size } = this;
    const [x, y] = [label.left + column * size[0], label.top + row * size[1]];
    const [from, to] = STRIKES[rule % STRIKES.length];
    pen.strokeStyle = styled("--strike");
    pen.lineWidth = 0.7;
    pen.beginPath();
    pen.moveTo(x + from[0] * size[0], y + from[1] * size[1]);
    pen.lineTo(x + to[0] * size[0], y + to[1] * size[1]);
    pen.stroke();
  }

  /** Names of rows and columns; of narrow ones as many as there is room for. */
  letter() {
    const { part, pen, label, size } = this;
    pen.fillStyle = styled("--quiet");
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const every = (each) => Math.max(1, Math.ceil(CELL.apart / each));
    for (let row = 0; row < part.rows; row += every(size[1])) {
      pen.fillText(short(part.rowNames[row]), label.left - 5, label.top + (row + 0.5) * size[1]);
    }
    const slanted = this.slanted(size[0]);
    pen.textAlign = slanted ? "left" : "center";
    for (let column = 0; column < part.columns; column += every(size[0] * (slanted ? SLANT : 0.5))) {
      pen.save();
      pen.translate(label.left + (column + 0.5) * size[0], label.top - (slanted ? 5 : 9));
      if (slanted) pen.rotate(-Math.PI / 4);
      pen.fillText(short(part.columnNames[column]), 0, 0);
      pen.restore();
    }
  }

  outline(pen, [row, column], colour) {
    const around = Math.min(...this.size) < 8 ? 2.5 : 0;
    pen.strokeStyle = styled(colour);
    pen.lineWidth = 2;
    pen.strokeRect(
      this.label.left + column * this.size[0] - around,
      this.label.top + row * this.size[1] - around,
      this.size[0] + 2 * around,
      this.size[1] + 2 * around,
    );
  }

  mark(place, kind) {
    this.outline(this.marker, place, kind === "here" ? "--here" : "--lit");
    if (kind !== "here") return;
    const { label, size, marker, part } = this;
    marker.fillStyle = styled("--here");
    marker.globalAlpha = 0.55;
    marker.fillRect(label.left - 4, label.top + place[0] * size[1], 3, Math.max(2, size[1]));
    marker.fillRect(label.left + place[1] * size[0], label.top - 4, Math.max(2, size[0]), 3);
    marker.globalAlpha = 1;
    this.reader.ariaLabel = this.said(place);
    if (part.rows > 1) this.reader.parentElement.ariaRowIndex = place[0] + 1;
  }

  /** Marks become part of the picture: on paper what lies above it would hide it. */
  flatten() {
    this.pen.save();
    this.pen.resetTransform();
    this.pen.drawImage(this.marker.canvas, 0, 0);
    this.pen.restore();
  }

  clear() {
    this.marker.clearRect(0, 0, this.element.clientWidth + 8, this.element.clientHeight + 8);
  }
}

const isSmall = (rows, columns) => columns <= SQUARE.many && rows <= SQUARE.many;

/** How wide a cell of so many rows and columns is at most, in this height. */
export function sideOf(rows, columns, height) {
  const most = isSmall(rows, columns) ? SQUARE.most : CELL.most;
  return rows > columns ? most : Math.min(most, Math.max(SQUARE.least, height / rows));
}

/** The matrix that suits these numbers. */
export function matrixFor(part, act) {
  return isSmall(part.rows, part.columns) ? new TableMatrix(part, act) : new PictureMatrix(part, act);
}
