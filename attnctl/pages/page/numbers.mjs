// Numbers as `attnctl explain` writes them.

const TIE = 30; // digits of toFixed that show a double's decimals to the end where they are a tie

/** The names of numbers that have no digits. */
function named(value) {
  if (Number.isNaN(value)) return "NaN";
  return value > 0 ? "∞" : "-∞";
}

/** 1.2000 -> 1.2, 3.0000 -> 3. */
function trimmed(digits) {
  return digits.includes(".") ? digits.replace(/0+$/, "").replace(/\.$/, "") : digits;
}

/** Decimal digits rounded half to even where the number lies exactly between two, as Python rounds. */
function rounded(digitsOf, precision) {
  const exact = digitsOf(precision + TIE);
  const up = digitsOf(precision);
  const [mantissa, exponent = ""] = exact.split("e");
  const cut = mantissa.length - TIE;
  if (mantissa.slice(cut) !== `5${"0".repeat(TIE - 1)}`) return up;
  const down = mantissa.slice(0, cut).replace(/\.$/, "");
  if ("02468".includes(down.at(-1))) return exponent ? `${down}e${exponent}` : down;
  return up;
}

/** So many decimals at most, none of them trailing zeros; very small and large ones by exponent. */
export function forPeople(value, precision = 4) {
  if (!Number.isFinite(value)) return named(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  const least = 10 ** -Math.min(3, precision);
  if (size >= least && size < 1e6) return trimmed(rounded((n) => value.toFixed(n), precision));
  const [mantissa, exponent] = rounded((n) => value.toExponential(n), precision).split("e");
  return `${trimmed(mantissa)}e${Number(exponent)}`;
}

/** So many decimals, always, that numbers stand in columns; large ones by exponent. */
export function inColumns(value, precision = 2) {
  if (!Number.isFinite(value)) return named(value);
  const text =
    Math.abs(value) < 1000 ? value.toFixed(precision) : value.toExponential(0).replace("e+", "e");
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/** Every digit, as a dump has them. */
export function everyDigit(value) {
  return Number.isFinite(value) ? String(value) : named(value).replace("∞", "Infinity");
}
