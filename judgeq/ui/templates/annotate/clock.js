// The time that is spent on a question: while the page is seen, and its reader does something.
const IDLE = 120_000;
export const LONG_IDLE = 15 * 60_000;

export class Clock {
  constructor() {
    this.spent = 0;
    this.since = null;
    this.touched = Date.now();
    const events = ["pointerdown", "pointermove", "keydown", "touchmove", "wheel"];
    let at = "";
    const touched = (event) => {
      // Browsers make up moves of a pointer that rests, when what is beneath it changes.
      const place = event.type === "pointermove" ? `${event.screenX} ${event.screenY}` : "";
      if (!place || place !== at) this.touch();
      at = place || at;
    };
    for (const name of events) addEventListener(name, touched, { passive: true, capture: true });
    document.addEventListener("visibilitychange", () => this.turn());
  }

  // A question is shown, on which `seconds` were spent before.
  begin(seconds = 0) {
    this.spent = seconds * 1000;
    this.go();
  }

  go() {
    this.count();
    this.running = true;
    this.touched = Date.now();
    this.since = document.hidden ? null : this.touched;
  }

  stop() {
    this.count();
    this.running = false;
    this.since = null;
  }

  get seconds() {
    this.count();
    return this.spent / 1000;
  }

  // Milliseconds since anything was done.
  get idle() {
    return Date.now() - this.touched;
  }

  touch() {
    this.count();
    this.touched = Date.now();
  }

  turn() {
    this.count();
    this.since = this.running && !document.hidden ? Date.now() : null;
    if (!document.hidden) this.touched = Date.now();
  }

  count() {
    if (this.since === null) return;
    const now = Date.now();
    this.spent += Math.max(0, Math.min(now, this.touched + IDLE) - this.since);
    this.since = now;
  }
}
