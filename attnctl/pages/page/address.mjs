// The address of what is looked at: #L3H1/it/animal/attention_weights; beside another head: #H1vsH0/….

const letters = { head: "H", batch: "B", chunk: "C" };
const axisOf = Object.fromEntries(Object.entries(letters).map(([axis, letter]) => [letter, axis]));

/** Which letter names the traces of a page: L where each is a layer of its own, else T; "" for one alone. */
function naming(traces) {
  const layers = traces.map(({ view }) => view.layer ?? null);
  if (!layers.includes(null) && new Set(layers).size === layers.length) return "L";
  return traces.length > 1 ? "T" : "";
}

/** The fragment of a cell, and of the head that its own is compared with. */
export function addressOf(traces, { trace, step, cell, other }, opened) {
  const known = opened.step(step);
  const letter = naming(traces);
  const lead = known.axes.slice(0, -2).map((axis, at) => `${letters[axis] ?? axis}${cell[at]}`);
  const inner = cell.slice(lead.length).map((at, i) => opened.names(known, lead.length + i)[at]);
  const number = letter === "L" ? traces[trace].view.layer : trace;
  const beside = other === undefined || !known.axes.slice(0, -2).includes("head") ? "" : `vsH${other}`;
  const first = `${letter ? letter + number : ""}${lead.join("")}${beside}`;
  return `#${[first, ...inner, step].filter(Boolean).map(encodeURIComponent).join("/")}`;
}

/** The parts of a fragment: {trace, lead, inner, step, other}, or undefined. */
export function parsed(traces, fragment) {
  let parts;
  try {
    parts = fragment.replace(/^#/, "").split("/").map(decodeURIComponent);
  } catch {
    return undefined;
  }
  const step = parts.pop();
  const names = (each) => traces[each]?.view.steps.some(({ name }) => name === step);
  const lead = {};
  let trace = 0;
  let other;
  const first = /^(?:([LT])(\d+))?((?:[HBC]\d+)*)(?:vsH(\d+))?$/.exec(parts[0] ?? "");
  if (first?.[0]) {
    parts.shift();
    const number = Number(first[2] ?? 0);
    trace = first[1] === "L" ? traces.findIndex(({ view }) => view.layer === number) : number;
    if (first[4]) other = Number(first[4]);
    for (const [, letter, at] of first[3].matchAll(/([HBC])(\d+)/g)) lead[axisOf[letter]] = Number(at);
  }
  return names(trace) ? { trace, step, lead, inner: parts, other } : undefined;
}

/** Places by axis of what a fragment names; undefined where a word of it is unknown. */
export function placesOf({ step, lead, inner }, opened) {
  const known = opened.step(step);
  const start = Math.max(0, known.axes.length - 2);
  const beyond = ([axis, at]) => !(at < known.shape[known.axes.indexOf(axis)]);
  if (Object.entries(lead).some(beyond)) return undefined;
  const found = { ...lead };
  const heads = (opened.weights?.shape.at(-3) ?? 1) / (known.shape[known.axes.indexOf("head")] ?? 1);
  if (heads > 1 && found.head !== undefined) found.head = Math.ceil(found.head * heads); // of those that share
  for (const [i, word] of inner.entries()) {
    const axis = start + i;
    if (axis >= known.axes.length) return undefined;
    const at = opened.names(known, axis).indexOf(word);
    if (at < 0) return undefined;
    found[known.axes[axis]] = at;
  }
  return found.token === undefined ? found : { query: found.token, ...found };
}
