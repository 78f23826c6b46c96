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
