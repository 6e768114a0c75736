// Elements without markup: a name, attributes, children. Text goes in as text, so nothing that a model says is parsed.
// Before: nothing. After: everything that shows something.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Attributes that are null, undefined or false are left out; handlers are added by their owner. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An element of a picture. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** The element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Set a text only where it changed, so that a live region speaks once. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A button that says that it does nothing now, and keeps the focus that it may have. */
export function enable(button, enabled) {
  button.setAttribute("aria-disabled", String(!enabled));
}

/** Call a handler when an enabled button is pressed. */
export function onPress(button, handler) {
  button.addEventListener("click", () => {
    if (button.getAttribute("aria-disabled") !== "true") handler();
  });
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) throw new Error(`an attribute must not be a handler: ${name}`);
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}
