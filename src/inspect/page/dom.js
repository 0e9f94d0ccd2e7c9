// Makes elements. Texts become text nodes, never HTML, whatever models and users wrote.

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else if (key === "value") made.value = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  fill(made, children);
  return made;
}

export function fill(parent, children) {
  const known = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  parent.replaceChildren(...known);
}

export function button(text, act, properties = {}) {
  return element("button", { type: "button", onclick: act, ...properties }, text);
}

// A choice among [value, text].
export function choice(label, options, value, act) {
  const made = options.map(([key, text]) => element("option", { value: key, selected: key === value }, text));
  const select = element("select", { onchange: (event) => act(event.target.value) }, made);
  return element("label", {}, element("span", {}, label), select);
}

// Facts as a list of names and values; those without a value are left out.
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "");
  return element("dl", { class: "facts" }, known.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

const NUMBER = new Intl.NumberFormat("en");
export const count = (number) => NUMBER.format(number);
export const many = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

// Seconds since 1970 as the date of the reader, with the seconds.
const DATE = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
export function time(seconds) {
  const at = new Date(seconds * 1000);
  return element("time", { datetime: at.toISOString(), title: at.toISOString() }, DATE.format(at));
}

// What clients named, no longer than can be shown.
export const clipped = (text) => (text.length > 100 ? `${text.slice(0, 99)}…` : text);

export const short = (id) => (id.length > 16 ? `${id.slice(0, id.indexOf("_") + 1)}${id.slice(id.indexOf("_") + 1).slice(0, 8)}…` : id);
