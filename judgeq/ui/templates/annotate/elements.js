// Elements of a page. All that is shown goes into it as text, never as markup.
export const part = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// A button with what it says, and its key.
export function button(text, key, onclick, attributes = {}) {
  const shown = key ? [make("kbd", { text: key, "aria-hidden": "true" })] : [];
  const keyed = /^[\w=]$/.test(key) ? { "aria-keyshortcuts": key } : {};
  return make("button", { type: "button", onclick, ...keyed, ...attributes }, ...shown, make("span", { text }));
}

// Announce to a screen reader; also what it announced before.
export function say(text) {
  const place = part("announced");
  place.textContent = place.textContent === text ? `${text}\u00a0` : text;
}

export function nth(number) {
  const tens = number % 100;
  const ending = tens > 10 && tens < 14 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[number % 10] ?? "th";
  return `${number}${ending}`;
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
