// Elements of the page; text is always text.

const SVG = "http://www.w3.org/2000/svg";

function filledIn(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function make(tag, attributes = {}, ...children) {
  return filledIn(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return filledIn(document.createElementNS(SVG, tag), attributes, children);
}

/** What nobody sees, or what turns words around; joiners of emoji and accents stay as people see them. */
const UNSEEN =
  /[\p{Cc}\p{Zl}\p{Zp}\u00ad\u061c\u115f\u1160\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|(?<!\p{Extended_Pictographic}\ufe0f?|\p{Emoji_Modifier})\u200d/gu;

/** A text in which everything is seen, as people see it. */
export function seen(text) {
  return text.replace(UNSEEN, (char) => `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`);
}
