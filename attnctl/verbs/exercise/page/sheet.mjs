// A sheet that is filled in: what is typed is kept in this browser, and saved as the JSON to hand in.
const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
const HIDDEN = /^-(inf|infinity|∞)$/i;

const find = (selector) => document.querySelector(selector);
const boxes = [...document.querySelectorAll("td.blank input")];
const dump = JSON.parse(find("#dump").textContent);
const place = `attnctl ${document.body.dataset.sheet}`;
const name = find("#name");

// What a box says: a number, "-Infinity", null where it is empty, undefined where it is neither.
function read(box) {
  const text = box.value.trim().replace(/[−–]/g, "-").replace(",", ".");
  if (text === "") return null;
  if (HIDDEN.test(text)) return "-Infinity";
  return NUMBER.test(text) ? Number(text) : undefined;
}

function show(said = "") {
  const numbers = boxes.map(read);
  numbers.forEach((number, at) => boxes[at].setAttribute("aria-invalid", number === undefined));
  const filled = numbers.filter((number) => number !== null && number !== undefined).length;
  const odd = numbers.filter((number) => number === undefined).length;
  const words = [`${filled} of ${boxes.length} filled in`];
  if (odd) words.push(`${odd} ${odd > 1 ? "are no numbers" : "is no number"}`);
  if (said) words.push(said);
  find("#state").textContent = words.join("; ");
}

function keep() {
  let said = "kept in this browser until you save";
  try {
    localStorage.setItem(place, JSON.stringify([name ? name.value : "", boxes.map((box) => box.value)]));
  } catch {
    said = "this browser keeps nothing: save before you close it";
  }
  show(said);
}

function recall() {
  try {
    const [who, texts] = JSON.parse(localStorage.getItem(place));
    if (name) name.value = who;
    texts.forEach((text, at) => (boxes[at].value = text));
  } catch {
    // nothing is kept, or nothing of ours
  }
  show();
}

// The row of numbers that a box stands in, and its place there.
function spot(data, box) {
  const places = box.dataset.at.split(" ").map(Number);
  const last = places.pop();
  return [places.reduce((part, at) => part[at], data[box.dataset.step].data), last];
}

function save() {
  const filled = structuredClone(dump);
  for (const box of boxes) {
    const [row, at] = spot(filled.steps, box);
    row[at] = read(box) ?? null;
  }
  const link = document.createElement("a");
  const who = `${dump.student ?? name?.value ?? ""} ${dump.student_id ?? ""}`.trim().replace(/[^\p{L}\p{N} _-]/gu, "_");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(filled)], { type: "application/json" }));
  link.download = `${who || "sheet"}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  show(`saved as ${link.download}: hand that in`);
}

async function open(event) {
  const [file] = event.target.files;
  event.target.value = "";
  try {
    const other = JSON.parse(await file.text());
    const same = (key) => JSON.stringify(other[key]) === JSON.stringify(dump[key]);
    if (!["sentence", "config", "blank"].every(same)) throw new Error("another sheet");
    for (const box of boxes) {
      const [row, at] = spot(other.steps, box);
      box.value = row[at] === null ? "" : String(row[at]).replace("-Infinity", "-inf");
    }
    keep();
  } catch {
    show(`${file.name} is not what this sheet saves`);
  }
}

// The box that stands so many rows and columns away in the same table.
function beside(box, rows, columns) {
  const cell = box.parentElement;
  const row = cell.closest("tbody").rows[cell.parentElement.sectionRowIndex + rows];
  return row?.cells[cell.cellIndex + columns]?.querySelector("input");
}

function move(event) {
  const step = { ArrowUp: -1, ArrowDown: 1, Enter: 1 }[event.key];
  const next = step && beside(event.target, step, 0);
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.select();
}

// Rows that are pasted, from a spreadsheet or a terminal, go into the boxes right and below.
function paste(event) {
  const text = event.clipboardData.getData("text").trim().replace(/[[\]|]/g, " ");
  const rows = text.split(/\r?\n|;/).map((row) => row.trim().split(/,?\s+/));
  if (rows.length === 1 && rows[0].length === 1) return;
  event.preventDefault();
  rows.forEach((row, down) =>
    row.forEach((word, right) => {
      const box = beside(event.target, down, right);
      if (box) box.value = word;
    }),
  );
  keep();
}

for (const box of boxes) {
  box.addEventListener("input", keep);
  box.addEventListener("keydown", move);
  box.addEventListener("paste", paste);
}
name?.addEventListener("input", keep);
find("#save").addEventListener("click", save);
find("#open").addEventListener("change", open);
find("#print").addEventListener("click", () => print());
recall();
