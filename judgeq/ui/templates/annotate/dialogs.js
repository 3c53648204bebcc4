// The dialogs: guidelines and keys, why something is skipped, a note.
import { button, make, part } from "./elements.js";

const REASONS = [
  ["undecided", "I can't decide"],
  ["broken", "A text is broken or unreadable"],
  ["known", "I know too much about it"],
  ["other", "Another reason"],
];
const COMMANDS = [
  ["s", "Skip, and say why"],
  ["u", "Take your last answer back"],
  ["n", "Add a note"],
  ["p", "Pause, continue"],
  ["? or h", "Show the guidelines"],
];
const STORED = "judgeq keys";

export const modified = (event) => event.ctrlKey || event.metaKey || event.altKey;

// Words without half characters, which no JSON holds.
const whole = (text) => text.trim().toWellFormed?.() ?? text.trim();

export class Dialogs {
  // Whether single keys do anything: who speaks to the computer turns them off.
  keys = true;

  constructor({ onskip, onnote, onread }) {
    this.onskip = onskip;
    try {
      this.keys = localStorage.getItem(STORED) !== "off";
    } catch {
      // not to be had
    }
    const buttons = REASONS.map(([reason, text], index) =>
      button(text, String(index + 1), () => this.#skipped(reason)));
    part("skip-reasons").append(...buttons);
    part("skip-dialog").addEventListener("keydown", (event) => {
      if (event.target.tagName === "TEXTAREA" || !this.keys || modified(event)) return;
      const reason = REASONS[Number(event.key) - 1];
      if (reason) this.#skipped(reason[0]);
    });
    // Not on "close", which comes later: an answer that was sent by then went without its note.
    const form = part("note-dialog").querySelector("form");
    form.addEventListener("submit", (event) => {
      if (event.submitter.value === "keep") onnote(whole(part("note-text").value));
    });
    part("note-text").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      form.requestSubmit(form.querySelector("[value=keep]"));
    });
    part("help-dialog").addEventListener("close", onread);
    part("help-shortcuts").checked = this.keys;
    part("help-shortcuts").addEventListener("change", () => this.#turn(part("help-shortcuts").checked));
  }

  help(about, keys) {
    part("help-feature").textContent = about.guidelines.includes(about.feature) ? "" : about.feature;
    const paragraphs = about.guidelines.split(/\n\s*\n/).filter((text) => text.trim());
    part("help-text").replaceChildren(...paragraphs.map((text) => make("p", { text, dir: "auto" })));
    const rows = [...keys, ...COMMANDS].map(([key, means]) =>
      make("tr", {}, make("th", { scope: "row" }, make("kbd", { text: key })), make("td", { text: means })));
    part("help-keys").tBodies[0].replaceChildren(...rows);
    part("help-dialog").showModal();
  }

  skip(note) {
    part("skip-note").value = note;
    part("skip-dialog").showModal();
  }

  note(note) {
    part("note-text").value = note;
    part("note-dialog").showModal();
  }

  close() {
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  }

  #skipped(reason) {
    part("skip-dialog").close();
    this.onskip(reason, whole(part("skip-note").value));
  }

  #turn(on) {
    this.keys = on;
    try {
      localStorage.setItem(STORED, on ? "on" : "off");
    } catch {
      // as long as the page is open
    }
  }
}
