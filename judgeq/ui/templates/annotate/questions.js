// How questions are shown, by their kind. A view has its elements (`texts`, `answers`), its explanation
// (`hint`, `keys`), what it does with a key (`onkey` returns whether it used it), and a `draft` to keep.
import { button, make, say } from "./elements.js";
import { digitOf, Ranking } from "./ranking.js";

function card(text, title) {
  return make(
    "article",
    { class: "card" },
    ...(title ? [make("h2", { text: title })] : []),
    make("div", { class: "text", dir: "auto", text }),
  );
}

function pair(texts, { ties, answer }) {
  const choose = (winner) => answer({ ranking: [winner, 1 - winner] }, buttons[winner]);
  const tie = () => answer({ ranking: [0, 1], tied: true }, buttons[2]);
  const cards = texts.map((text, index) => {
    const shown = card(text, `Text ${index + 1}`);
    let pointer = ""; // not every browser says it of a click
    shown.addEventListener("pointerdown", (event) => (pointer = event.pointerType));
    shown.addEventListener("click", (event) => {
      // A finger that rests on a text has chosen nothing, nor a mouse that marks some of its words.
      if (pointer === "mouse" && event.detail < 2 && !String(getSelection())) choose(index);
    });
    return shown;
  });
  const buttons = [0, 1].map((index) => button(`Text ${index + 1}`, String(index + 1), () => choose(index)));
  if (ties) buttons.push(button("Equal", "=", tie));
  return {
    texts: [make("div", { class: "pair" }, ...cards)],
    answers: ties ? [buttons[0], buttons[2], buttons[1]] : buttons,
    hint: [],
    keys: [["1", "Text 1"], ["2", "Text 2"], ...(ties ? [["=", "Equal"]] : [])],
    onkey(event) {
      if (ties && event.key === "=") tie();
      else if ([0, 1].includes(digitOf(event))) choose(digitOf(event));
      else return false;
      return true;
    },
    draft: null,
  };
}

function direct([text], { answer }) {
  const score = (digit) => answer({ score: digit / 9 }, buttons[digit]);
  const buttons = Array.from({ length: 10 }, (_, digit) =>
    make("button", { type: "button", text: String(digit), "aria-label": `${digit} of 9`, onclick: () => score(digit) }),
  );
  const scale = make("div", { class: "scale" }, ...buttons);
  const ends = make("p", { class: "ends" }, make("span", { text: "0: least" }), make("span", { text: "9: most" }));
  return {
    texts: [make("div", { class: "single" }, card(text))],
    answers: [make("div", { class: "scaled" }, ends, scale)],
    hint: [],
    keys: [["0 to 9", "From least to most"]],
    onkey(event) {
      const index = digitOf(event);
      if (index === null || index > 9) return false;
      score((index + 1) % 10);
      return true;
    },
    draft: null,
  };
}

function list(texts, { answer, draft, onchange }) {
  const asking = make("p", { class: "doubt", role: "alert" });
  let asked = false;
  const ranking = new Ranking(texts, draft, () => {
    asked = false;
    asking.textContent = "";
    send.classList.toggle("ready", !ranking.doubt);
    onchange();
  });
  const submit = () => {
    const { doubt } = ranking;
    if (doubt && !asked) {
      asked = true;
      asking.textContent = `${doubt} Press Enter or the button again to send this order.`;
      return;
    }
    answer({ ranking: ranking.order }, send);
  };
  const send = button("Send this order", "⏎", (event) => event.detail < 2 && submit());
  send.classList.toggle("ready", !ranking.doubt);
  return {
    texts: [ranking.list],
    answers: [asking, send],
    hint: [
      "Most at the top. Drag the texts by their handles.",
      make("span", { class: "by-keys", text: " Or press their digits, most first, or move one with the arrow keys." }),
    ],
    keys: [
      ["1 to 9, 0", "This text gets the next place (with Shift: the 11th to the 20th)"],
      ["Space", "The text in focus gets the next place"],
      ["↑ ↓ Home End", "Move the text in focus"],
      ["Backspace", "Take the last place back"],
      ["Enter", "Send the order"],
    ],
    onkey(event) {
      const index = digitOf(event);
      if (index !== null && index < texts.length) ranking.place(index);
      else if (event.key === "Backspace") ranking.takeBack();
      else return false;
      return true;
    },
    onenter: submit,
    get draft() {
      return ranking.draft;
    },
  };
}

const VIEWS = { pair, direct, list };

// `how`: `ties`, `draft`, and what is called: `answer(body, button)`, `onchange()`.
export function view(question, how) {
  return VIEWS[question.kind](question.texts, how);
}

export function announced({ kind, texts }, number, quota) {
  const what = kind === "pair" ? "two texts" : kind === "list" ? `${texts.length} texts` : "one text";
  say(`Question ${number}${quota ? ` of ${quota}` : ""}: ${what}`);
}
