// Finds and builds elements; knows nothing of captions.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An HTML element: attributes that are null or false are left out, functions listen to events. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same in SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** A copy of what a <template> holds. */
export function fromTemplate(id) {
  return byId(id).content.firstElementChild.cloneNode(true);
}

/** The options of a <select>, keeping what was chosen where it is still there. */
export function setOptions(select, options, chosen = select.value) {
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

/** Calls back once nothing more has come for a while. */
export function debounced(wait_ms, callback) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(callback, wait_ms, ...given);
  };
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
