// A matrix of a step: a table of numbers where it is small, a picture of them where it is not.

import { styled } from "./colours.mjs";
import { make } from "./elements.mjs";
import { forPeople } from "./numbers.mjs";

const MOST_COLUMNS = 16;
const MOST_CELLS = 400;
const PICTURE = 380; // pixels that a picture is wide at most where its squares can be so small
const SQUARES = { least: 2, most: 18, lettered: 9 };
const LABEL = 66; // pixels for tokens beside a picture

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** Where a key takes the cell (row, column), or undefined. */
function moved(key, row, column, rows, columns) {
  if (key === "Home") return [row, 0];
  if (key === "End") return [row, columns - 1];
  const by = ARROWS[key];
  if (!by) return undefined;
  const [down, right] = [row + by[0], column + by[1]];
  return down >= 0 && down < rows && right >= 0 && right < columns ? [down, right] : [row, column];
}

/** Where the pointer was last: a page that scrolls under a pointer that rests is not pointed at. */
const pointer = { x: 0, y: 0 };

/** What both kinds of matrix have: which cells it holds, and how a key or the pointer reaches them. */
class Matrix {
  /** `part` is {step, lead, rows, columns, rowNames, columnNames, label, value, hidden, wrong, shades}. */
  constructor(part, visit) {
    this.part = part;
    this.visit = visit;
    this.place = [0, 0];
  }

  cell([row, column]) {
    const { step, lead } = this.part;
    if (!step.shape.length) return [];
    return step.shape.length === 1 ? [column] : [...lead, row, column];
  }

  placeOf(cell) {
    if (cell.length < 2) return [0, cell[0] ?? 0];
    return cell.slice(-2);
  }

  pointed(event) {
    if (event.clientX === pointer.x && event.clientY === pointer.y) return;
    [pointer.x, pointer.y] = [event.clientX, event.clientY];
    const place = this.under(event);
    if (place) this.visit(this, place, "look");
  }

  listen() {
    this.element.addEventListener("keydown", (event) => this.pressed(event));
    this.element.addEventListener("pointermove", (event) => this.pointed(event));
  }

  pressed(event) {
    const to = moved(event.key, ...this.place, this.part.rows, this.part.columns);
    if (to) {
      event.preventDefault();
      this.focus(to);
    } else if (event.key === "Enter" || event.key === "Backspace") {
      event.preventDefault();
      this.visit(this, this.place, event.key === "Enter" ? "follow" : "back");
    }
  }
}

/** A small matrix: a grid of numbers. */
export class TableMatrix extends Matrix {
  build() {
    const { part } = this;
    const head = part.columnNames.map((name) => make("th", { scope: "col" }, name));
    this.cells = Array.from({ length: part.rows }, (_, row) =>
      Array.from({ length: part.columns }, (_, column) => this.td(row, column)),
    );
    const rows = this.cells.map((cells, row) =>
      make("tr", {}, make("th", { scope: "row" }, part.rowNames[row]), ...cells),
    );
    this.element = make(
      "table",
      { role: "grid", "aria-label": part.label },
      make("thead", {}, make("tr", {}, make("td", {}), ...head)),
      make("tbody", {}, ...rows),
    );
    this.cells[0][0].tabIndex = 0;
    this.listen();
    this.shade();
    return this.element;
  }

  under(event) {
    const td = event.target.closest("tbody td");
    return td ? [td.parentElement.sectionRowIndex, td.cellIndex - 1] : undefined;
  }

  td(row, column) {
    const td = make("td", { tabindex: -1 });
    const value = this.part.value(row, column);
    td.textContent = forPeople(value, 2);
    if (this.part.hidden(row, column)) td.classList.add("hidden");
    if (this.part.wrong(row, column)) td.classList.add("wrong");
    td.addEventListener("focus", () => {
      this.rove([row, column]);
      this.visit(this, [row, column], "look");
    });
    return td;
  }

  rove(to) {
    this.cells[this.place[0]][this.place[1]].tabIndex = -1;
    this.place = to;
    this.cells[to[0]][to[1]].tabIndex = 0;
  }

  focus(to) {
    this.rove(to);
    this.cells[to[0]][to[1]].focus();
  }

  shade() {
    this.cells.forEach((cells, row) => {
      cells.forEach((td, column) => {
        const value = this.part.value(row, column);
        const shade = this.part.shades.of(value);
        td.style.backgroundColor = shade ? `rgb(${shade})` : "";
        td.style.color = this.part.shades.text(value);
      });
    });
  }

  mark(place, kind, on) {
    this.cells[place[0]][place[1]].classList.toggle(kind, on);
  }

  clear() {
    for (const cell of this.element.querySelectorAll(".lit, .here")) cell.classList.remove("lit", "here");
  }
}

/** A large matrix: a picture with a square for each number, and what is marked drawn above it. */
export class PictureMatrix extends Matrix {
  build() {
    const { part } = this;
    const room = PICTURE / Math.max(part.columns, Math.min(part.rows, 3 * part.columns));
    this.square = Math.round(Math.min(SQUARES.most, Math.max(SQUARES.least, Math.floor(room))));
    this.lettered = this.square >= SQUARES.lettered;
    this.left = this.lettered ? LABEL : 0;
    this.picture = make("canvas", { "aria-hidden": "true" });
    this.marks = make("canvas", { class: "marks", "aria-hidden": "true" });
    this.element = make(
      "div",
      {
        class: "picture",
        tabindex: 0,
        role: "application",
        "aria-roledescription": "matrix",
        "aria-label": `${part.label}: ${part.rows} × ${part.columns}; arrow keys move, Enter follows`,
      },
      this.picture,
      this.marks,
    );
    const scale = devicePixelRatio || 1;
    const [width, height] = [this.left + part.columns * this.square, this.left + part.rows * this.square];
    for (const canvas of [this.picture, this.marks]) {
      canvas.width = width * scale;
      canvas.height = height * scale;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      canvas.getContext("2d").scale(scale, scale);
    }
    this.listen();
    return this.element;
  }

  listen() {
    super.listen();
    this.element.addEventListener("focus", () => this.visit(this, this.place, "look"));
    this.element.addEventListener("pointerdown", (event) => {
      this.place = this.under(event) ?? this.place;
    });
    this.element.addEventListener("click", () => this.visit(this, this.place, "look"));
  }

  under(event) {
    const box = this.picture.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - this.left) / this.square);
    const column = Math.floor((event.clientX - box.left - this.left) / this.square);
    const inside = row >= 0 && column >= 0 && row < this.part.rows && column < this.part.columns;
    return inside ? [row, column] : undefined;
  }

  focus(to) {
    this.place = to;
    if (document.activeElement === this.element) this.visit(this, to, "look");
    else this.element.focus();
  }

  shade() {
    const { part, square, left } = this;
    const { rows, columns } = part;
    const pen = this.picture.getContext("2d");
    pen.clearRect(0, 0, this.picture.width, this.picture.height);
    const pixels = document.createElement("canvas");
    part.shades.draw(pixels, rows, columns, (at) => part.value(Math.floor(at / columns), at % columns));
    pen.imageSmoothingEnabled = false;
    pen.drawImage(pixels, left, left, columns * square, rows * square);
    if (this.lettered) this.letter(pen);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        if (this.lettered && part.hidden(row, column)) this.strike(pen, row, column);
        if (part.wrong(row, column)) this.outline(pen, [row, column], "--wrong");
      }
    }
  }

  strike(pen, row, column) {
    const [x, y] = [this.left + column * this.square, this.left + row * this.square];
    pen.strokeStyle = styled("--strike");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, y + this.square);
    pen.lineTo(x + this.square, y);
    pen.stroke();
  }

  letter(pen) {
    const { part, square, left } = this;
    pen.fillStyle = styled("--ink");
    pen.font = `${Math.min(11, square)}px ${styled("--font")}`;
    pen.textBaseline = "middle";
    const short = (name) => (name.length > 10 ? `${name.slice(0, 9)}…` : name);
    pen.textAlign = "right";
    part.rowNames.forEach((name, row) => {
      pen.fillText(short(name), left - 4, left + (row + 0.5) * square, left - 4);
    });
    pen.textAlign = "left";
    part.columnNames.forEach((name, column) => {
      pen.save();
      pen.translate(left + (column + 0.5) * square, left - 4);
      pen.rotate(-Math.PI / 2);
      pen.fillText(short(name), 0, 0, left - 4);
      pen.restore();
    });
  }

  outline(pen, [row, column], colour) {
    pen.strokeStyle = styled(colour);
    const { square, left } = this;
    const around = square < 8 ? 2 : -0.5; // of small squares the frame stands outside
    pen.lineWidth = square < 8 ? 1.5 : 2;
    const side = square + 2 * around;
    pen.strokeRect(left + column * square - around, left + row * square - around, side, side);
  }

  mark(place, kind, on) {
    if (on) this.outline(this.marks.getContext("2d"), place, kind === "here" ? "--here" : "--lit");
  }

  clear() {
    this.marks.getContext("2d").clearRect(0, 0, this.marks.width, this.marks.height);
  }
}

/** The matrix that suits these numbers. */
export function matrixFor(part, visit) {
  const small = part.columns <= MOST_COLUMNS && part.rows * part.columns <= MOST_CELLS;
  return small ? new TableMatrix(part, visit) : new PictureMatrix(part, visit);
}
