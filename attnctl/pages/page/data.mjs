// The numbers of the page: arrays in script blocks, deflated, their bytes sorted by place.

/** A float16 as a number. */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

let halves; // every float16 as a number, by its bits

/** Numbers of 16 bits as numbers. */
function widened(bits) {
  halves ??= Float32Array.from({ length: 1 << 16 }, (_, each) => half(each));
  const out = new Float32Array(bits.length);
  for (let at = 0; at < bits.length; at++) out[at] = halves[bits[at]];
  return out;
}

const VIEWS = {
  float64: Float64Array,
  float32: Float32Array,
  int64: BigInt64Array,
  int32: Int32Array,
  int16: Int16Array,
  int8: Int8Array,
  uint64: BigUint64Array,
  uint32: Uint32Array,
  uint16: Uint16Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

/** The numbers of an array from its bytes, which lie with the first byte of each number first. */
export function unpacked(bytes, dtype) {
  const View = dtype === "float16" ? Uint16Array : VIEWS[dtype];
  const size = View.BYTES_PER_ELEMENT;
  const count = bytes.length / size;
  const sorted = new Uint8Array(bytes.length);
  for (let place = 0; place < size; place++) {
    for (let at = 0; at < count; at++) sorted[at * size + place] = bytes[place * count + at];
  }
  const view = new View(sorted.buffer);
  if (dtype === "float16") return widened(view);
  return dtype.endsWith("64") && dtype !== "float64" ? Float64Array.from(view, Number) : view;
}

/** Numbers in rows and columns, as many axes as there are. */
export class Numbers {
  constructor(values, shape) {
    this.values = values;
    this.shape = shape;
    this.steps = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));
  }

  /** Where the number of a cell lies; an axis of size 1 serves every place. */
  offset(cell) {
    const skipped = cell.length - this.shape.length;
    let at = 0;
    for (let axis = 0; axis < this.shape.length; axis++) {
      if (this.shape[axis] > 1) at += cell[axis + skipped] * this.steps[axis];
    }
    return at;
  }

  at(cell) {
    return this.values[this.offset(cell)];
  }

  /** The cell whose number lies there. */
  cellAt(offset) {
    return this.steps.map((step, axis) => Math.floor(offset / step) % this.shape[axis]);
  }
}

/** The bytes that a text in base64 holds, inflated. */
async function inflated(text) {
  const characters = atob(text);
  const packed = new Uint8Array(characters.length);
  for (let at = 0; at < packed.length; at++) packed[at] = characters.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The arrays of the page by number, each inflated once, when it is first asked for. */
export class Blocks {
  constructor(described, textOf) {
    this.described = described;
    this.textOf = textOf;
    this.known = new Map();
  }

  get(number) {
    if (!this.known.has(number)) this.known.set(number, this.load(number));
    return this.known.get(number);
  }

  async load(number) {
    const { dtype, shape } = this.described[number];
    const bytes = await inflated(this.textOf(number));
    return new Numbers(unpacked(bytes, dtype), shape);
  }
}

/** The places along the leading axes of a step, one for each of its matrices. */
export function leading(shape) {
  return shape.slice(0, -2).reduce(
    (all, size) => {
      const places = Array.from({ length: size }, (_, at) => at);
      return all.flatMap((lead) => places.map((at) => [...lead, at]));
    },
    [[]],
  );
}
