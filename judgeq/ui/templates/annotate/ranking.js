// A list that is put in order: by dragging, by arrows, or by the digits of its texts, one place after the
// other.
import { draggable } from "./dragging.js";
import { make, nth, say } from "./elements.js";

const KEYED = 20;

// The key of a text: 1 to 9, 0 for the tenth, and with the shift key for ten more.
function keyOf(index) {
  if (index >= KEYED) return "";
  return (index < 10 ? "" : "⇧") + String((index + 1) % 10);
}

// The text that a key means, or null; by its place where digits are written with the shift key.
export function digitOf(event) {
  const digit = /^[0-9]$/.test(event.key) ? event.key : /^Digit([0-9])$/.exec(event.code)?.[1];
  if (digit === undefined) return null;
  const shifted = event.shiftKey && event.key !== digit;
  return (shifted ? 10 : 0) + ((Number(digit) + 9) % 10);
}

export class Ranking {
  // `draft`: how far it was put in order before. `onchange` is called when it has another order.
  constructor(texts, draft, onchange) {
    this.onchange = onchange;
    this.placed = new Set(draft?.placed ?? []);
    this.moved = draft?.moved ?? false;
    this.keyed = draft?.keyed ?? [];
    this.list = make("ol", { class: "ranking", role: "list", "aria-label": "The texts, in your order" });
    this.items = texts.map((text, index) => this.#item(text, index));
    this.list.append(...(draft?.order ?? texts.map((_, index) => index)).map((index) => this.items[index]));
    this.#number();
    new ResizeObserver(() => this.#measure()).observe(this.list);
  }

  get order() {
    return [...this.list.children].map((item) => Number(item.dataset.index));
  }

  get draft() {
    return { order: this.order, placed: [...this.placed], moved: this.moved, keyed: this.keyed };
  }

  // Texts without a place, of those who give places one by one.
  get open() {
    return this.items.length - this.placed.size;
  }

  // Why this may not be what is meant, or "".
  get doubt() {
    if (this.keyed.length && this.open) {
      const texts = this.open === 1 ? "1 text has" : `${this.open} texts have`;
      return `${texts} no place yet.`;
    }
    return this.moved || this.keyed.length ? "" : "You haven't changed the order.";
  }

  #item(text, index) {
    const name = `Text ${index + 1}`;
    const handle = make("button", { type: "button", class: "handle", "aria-describedby": "moving" });
    const step = (by, sign, word) =>
      make("button", {
        type: "button",
        class: "step",
        tabindex: "-1",
        text: sign,
        "aria-label": `Move ${name} ${word}`,
        onclick: () => this.move(index, by),
      });
    const whole = make("button", {
      type: "button",
      class: "whole-text",
      text: "Show all",
      "aria-expanded": "false",
      "aria-label": `All of ${name}`,
      hidden: "",
      onclick: () => whole.setAttribute("aria-expanded", String(item.classList.toggle("open"))),
    });
    const item = make(
      "li",
      { "data-index": index },
      make("span", { class: "place", "aria-hidden": "true" }),
      make("kbd", { text: keyOf(index), "aria-hidden": "true" }),
      make("div", { class: "words" }, make("span", { class: "unseen", text: name }), make("div", { class: "text", dir: "auto", text }), whole),
      make("div", { class: "moves" }, step(-1, "↑", "up"), step(1, "↓", "down"), handle),
    );
    handle.addEventListener("keydown", (event) => this.#onkey(event, index));
    draggable(this.list, item, handle, () => this.#moved(index));
    return item;
  }

  // A long text is shown whole when that is asked for: lists are there to be looked over.
  #measure() {
    for (const item of this.items) {
      const text = item.querySelector(".text");
      const fits = text.scrollHeight <= text.clientHeight + 1;
      if (!item.classList.contains("open")) item.querySelector(".whole-text").hidden = fits;
    }
  }

  #onkey(event, index) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = this.items.length;
    const by = { ArrowUp: -1, ArrowDown: 1, Home: -far, End: far }[event.key];
    if (by !== undefined) this.move(index, by);
    else if (event.key === " ") this.place(index);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // By a number of places; negative: up.
  move(index, by) {
    const item = this.items[index];
    const others = this.order.filter((other) => other !== index);
    const from = this.order.indexOf(index);
    const to = Math.max(0, Math.min(others.length, from + by));
    if (to === from) return say(`Text ${index + 1} is ${nth(to + 1)} already`);
    this.#put(item, to);
    this.#moved(index);
    this.#focus(item);
  }

  // At the next place that none has.
  place(index) {
    if (this.placed.has(index)) {
      const at = this.order.indexOf(index) + 1;
      return say(`Text ${index + 1} has its place already: ${nth(at)}`);
    }
    const focused = document.activeElement;
    const to = this.order.findIndex((other) => !this.placed.has(other));
    this.#put(this.items[index], to);
    this.placed.add(index);
    this.keyed.push(index);
    if (this.open === 1) this.placed.add(this.order.find((other) => !this.placed.has(other)));
    this.#changed();
    focused?.focus({ preventScroll: true });
    this.items[index].scrollIntoView({ block: "nearest" });
    const left = this.open ? `${this.open} to go` : "All have a place: Enter sends your order";
    say(`Text ${index + 1} is ${nth(to + 1)}. ${left}`);
  }

  // The last that was placed by its key has no place again.
  takeBack() {
    const index = this.keyed.pop();
    if (index === undefined) return;
    this.placed = new Set(this.keyed);
    this.#put(this.items[index], this.keyed.length);
    this.#changed();
    say(`Text ${index + 1} has no place again`);
  }

  #put(item, to) {
    const others = [...this.list.children].filter((other) => other !== item);
    // The others are moved: what has the focus, or is being read, stays in the document.
    item.before(...others.slice(0, to));
    item.after(...others.slice(to));
  }

  #focus(item) {
    item.querySelector(".handle").focus({ preventScroll: true });
    item.scrollIntoView({ block: "nearest" });
  }

  #moved(index) {
    this.moved = true;
    this.placed.add(index);
    this.#changed();
    say(`Text ${index + 1} is ${nth(this.order.indexOf(index) + 1)} of ${this.items.length}`);
  }

  #changed() {
    this.#number();
    this.onchange();
  }

  #number() {
    const { length } = this.items;
    [...this.list.children].forEach((item, at) => {
      const index = Number(item.dataset.index);
      item.classList.toggle("placed", this.placed.has(index));
      item.querySelector(".place").textContent = nth(at + 1);
      const label = `Text ${index + 1}, ${nth(at + 1)} of ${length}`;
      item.querySelector(".handle").setAttribute("aria-label", label);
      const [up, down] = item.querySelectorAll(".step");
      up.disabled = at === 0;
      down.disabled = at === length - 1;
    });
  }
}
