// Elements of a list are dragged by their handles, with a mouse or a finger.
import { calm } from "./elements.js";

const EDGE = 90; // pixels from the window's edges, within which it scrolls
const SPEED = 16; // pixels a frame, at most

// What is dragged stays where it is in the document, and its neighbours are moved around it: an element
// that is moved itself loses the pointer.
export function draggable(list, item, handle, onmoved) {
  handle.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || list.dataset.dragging !== undefined) return;
    event.preventDefault();
    handle.focus({ preventScroll: true });
    handle.setPointerCapture(event.pointerId);
    new Drag(list, item, handle, event, onmoved);
  });
}

class Drag {
  constructor(list, item, handle, event, onmoved) {
    Object.assign(this, { list, item, handle, onmoved, pointer: event.pointerId, y: event.clientY });
    this.grip = event.clientY - item.getBoundingClientRect().top;
    this.before = [...list.children];
    list.dataset.dragging = "";
    item.classList.add("dragged");
    const ended = new AbortController();
    const on = (name, does) => addEventListener(name, does, { signal: ended.signal, capture: true });
    this.ended = ended;
    on("pointermove", (move) => {
      if (move.pointerId === this.pointer) this.y = move.clientY;
    });
    on("pointerup", (up) => up.pointerId === this.pointer && this.end());
    on("pointercancel", (end) => end.pointerId === this.pointer && this.cancel());
    on("keydown", (press) => {
      press.stopPropagation();
      press.preventDefault();
      if (press.key === "Escape") this.cancel();
    });
    this.frame = requestAnimationFrame(() => this.step());
  }

  step() {
    this.scroll();
    this.follow();
    this.frame = requestAnimationFrame(() => this.step());
  }

  scroll() {
    const bottom = (document.getElementById("bar")?.getBoundingClientRect().top ?? innerHeight);
    const up = EDGE - this.y;
    const down = this.y - (bottom - EDGE);
    const far = Math.max(up, down);
    if (far > 0) scrollBy(0, (up > down ? -1 : 1) * Math.min(SPEED, far / 4));
  }

  // A neighbour makes room as soon as the edge of what is dragged has passed its middle, and goes back as
  // soon as it hasn't, however high both are. Measured where the layout has them, not where they are seen
  // on their way.
  follow() {
    const { item, list } = this;
    const at = this.y - this.grip - list.getBoundingClientRect().top - list.clientTop;
    const end = at + item.offsetHeight;
    for (;;) {
      const { previousElementSibling: above, nextElementSibling: below } = item;
      if (above && at < centre(above)) pass(above, () => item.after(above));
      else if (below && end > centre(below)) pass(below, () => item.before(below));
      else break;
    }
    item.style.transform = `translateY(${at - item.offsetTop}px)`;
  }

  end() {
    this.follow();
    this.close();
    const moved = [...this.list.children].some((child, index) => child !== this.before[index]);
    if (moved) this.onmoved();
  }

  cancel() {
    const { item, before } = this;
    const at = before.indexOf(item);
    item.before(...before.slice(0, at));
    item.after(...before.slice(at + 1));
    this.close();
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.ended.abort();
    this.item.style.transform = "";
    this.item.classList.remove("dragged");
    delete this.list.dataset.dragging;
  }
}

function centre(element) {
  return element.offsetTop + element.offsetHeight / 2;
}

// A neighbour goes to its new place, and is seen going there.
function pass(element, move) {
  const from = element.offsetTop;
  move();
  if (calm()) return;
  const way = [{ transform: `translateY(${from - element.offsetTop}px)` }, { transform: "none" }];
  element.animate(way, { duration: 120, easing: "ease-out" });
}
