// The page on which people judge: what it shows, what they do, and sending that.
import { Clock, LONG_IDLE } from "./clock.js";
import { Dialogs, modified } from "./dialogs.js";
import { make, part, say } from "./elements.js";
import { announced, view } from "./questions.js";
import { Away, Refused, Server, Shelf } from "./server.js";

const RENEWED = 20_000;
const SETTLED = 250; // milliseconds in which nobody has read a new question: a second click, a held key
const FIRST_LOOK = 1; // seconds until it is asked again whether there is something to do
const LAST_LOOK = 4; // the server announces the end of a run for five seconds (People.finish)

const shelf = new Shelf(`judgeq ${location.pathname}`);
const clock = new Clock();
const dialogs = new Dialogs({
  onskip: skip,
  onnote(text) {
    note = text;
    showNote();
    keep();
  },
  onread: () => shown && !busy && clock.go(),
});
const server = new Server(null, away);
let about = null;
let turn = null;
let shown = null; // the view of the question that is shown
let sending = null; // what waits to be sent
let busy = true;
let paused = false;
let ready = 0;
let note = "";
let leaving = null; // the question being given back
let last = null; // the last answer, to be shown if it is taken back
let look = 0;
let lookTimer = 0;

// What is kept of the question that is shown: for a page that is loaded again, and after a pause.
const keep = () => shown && shelf.put(`draft ${server.token}`, {
  question: turn.question.id,
  digest: digest(turn.question),
  seconds: clock.seconds,
  note,
  draft: shown?.draft ?? null,
});

// Recognises a question that comes back under another id (FNV-1a).
function digest({ kind, texts }) {
  let hash = 0x811c9dc5;
  const text = JSON.stringify([kind, texts]);
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193) >>> 0;
  return `${text.length}-${hash}`;
}

function away(error) {
  part("link").hidden = error === null;
  if (error === null) {
    part("link-text").textContent = "";
    return;
  }
  let kept = "";
  if (sending) kept = " Your answer is kept here and sent again. Keep this page open.";
  // The server announces its end for a few seconds only; a page that slept misses it.
  else if (turn && !shown && !error.message) kept = " The study may be over. Your answers are saved; you can close this page. Thank you.";
  const text = error.message || "No connection to the study.";
  if (part("link-text").textContent === text + kept) return;
  part("link-text").textContent = text + kept;
  say(text + kept);
}

function warn(text) {
  part("notices").replaceChildren(...(text ? [make("p", { class: "warning", text, dir: "auto" })] : []));
}

// One thing at a time: what is done meanwhile does nothing.
async function act(does) {
  if (busy) return;
  busy = true;
  part("question").inert = true;
  part("question").setAttribute("aria-busy", "true");
  try {
    await does();
  } catch (error) {
    failed(error);
  } finally {
    busy = false;
    part("question").inert = false;
    if (shown && document.activeElement === document.body) part("asked").focus({ preventScroll: true });
    settle();
  }
}

// A question that is shown may be answered, a moment later.
function settle() {
  const wait = ready - performance.now();
  if (wait > 0) setTimeout(settle, wait);
  else if (!busy) part("question").removeAttribute("aria-busy");
}

function failed(error) {
  if (!(error instanceof Refused)) throw error;
  if (error.status === 401) {
    shelf.put("token", null);
    leaveQuestion();
    return message("This link doesn't work", [error.message]);
  }
  leaveQuestion();
  message("This didn't work", [error.message], "Try again", () => act(async () => show(await fetched())));
}

const fetched = () => server.insist("turn");

// Sent until it is accepted or refused; kept until then, also if the page is loaded again.
async function deliver(name, body) {
  sending = { name, body };
  shelf.put(`sending ${server.token}`, sending);
  let next = null;
  try {
    next = await server.insist(name, body);
  } catch (error) {
    if (!(error instanceof Refused) || error.status === 401) throw error;
    // A skip whose reply was lost was accepted the first time.
    if (!(name === "skip" && error.status === 409 && error.tried > 1)) warn(error.message);
  } finally {
    sending = null;
    shelf.put(`sending ${server.token}`, null);
  }
  return next ?? fetched();
}

function answer(content, chosen) {
  if (part("question").hasAttribute("aria-busy")) return;
  act(async () => {
    warn("");
    chosen.classList.add("chosen");
    clock.stop();
    const { id, texts } = turn.question;
    const seconds = Math.min(86_400, Math.round(clock.seconds * 10) / 10);
    last = { texts, note, order: content.ranking };
    show(await deliver("answer", { question: id, ...content, seconds, note }));
  });
}

function skip(reason, words) {
  act(async () => {
    warn("");
    clock.stop();
    show(await deliver("skip", { question: turn.question.id, reason, note: words }));
  });
}

function undo() {
  if (!turn?.undo || paused) return;
  act(async () => {
    warn("");
    const { done } = turn;
    let why = "The connection broke. Your last answer wasn't taken back. Try again.";
    let next = null;
    try {
      next = await server.call("undo");
    } catch (error) {
      if (error.status && error.status !== 409) throw error;
      if (error.status) why = error.message;
      // Not sent again: it may have been done, and would take back the one before.
      next = await fetched();
    }
    const undone = next.done < done;
    show(next, undone ? last : null);
    if (undone) say("Your last answer was taken back");
    else warn(why);
  });
}

function pause(why = "Others may get your question now. What you did so far is kept here.") {
  if (!turn?.question || paused || busy) return;
  clock.stop();
  keep();
  paused = true;
  const { id } = turn.question;
  leaveQuestion();
  message("Paused", [why], "Continue", resume);
  leaving = server.call("leave", { question: id }).catch(() => {}); // its lease ends by itself
}

function resume() {
  act(async () => {
    await leaving; // or it would be given back after it was had again
    const next = await fetched();
    paused = false;
    show(next);
  });
}

// Views

function show(next, again = null) {
  const waited = turn?.why === "wait";
  turn = next;
  clearTimeout(lookTimer);
  dialogs.close();
  showProgress();
  if (turn.question === null) return showNothing();
  look = 0;
  showQuestion(again, waited);
}

function showQuestion(again, waited) {
  const { question, done, quota } = turn;
  const kept = shelf.get(`draft ${server.token}`);
  const mine = kept?.digest === digest(question) ? kept : null;
  const same = again?.order && question.texts.every((text, index) => text === again.texts[index]);
  const draft = mine?.draft ?? (same ? { order: again.order, placed: again.order, moved: true } : null);
  note = mine?.note ?? (same ? again.note : "");
  shown = view(question, { ties: about.ties, draft, answer, onchange: keep });
  part("asked").textContent = (about.questions[question.kind] ?? about.feature)
    .trim().replaceAll("$count", String(question.texts.length));
  part("hint").replaceChildren(...shown.hint);
  part("texts").replaceChildren(...shown.texts);
  part("texts").dataset.kind = question.kind;
  part("answers").replaceChildren(...shown.answers);
  part("message").hidden = true;
  part("question").hidden = false;
  part("question").inert = false;
  showNote();
  titled(`${done + 1}${quota ? `/${quota}` : ""} · ${about.title}`, waited);
  scrollTo(0, 0);
  part("asked").focus({ preventScroll: true });
  announced(question, done + 1, quota);
  clock.begin(mine?.seconds ?? 0);
  ready = performance.now() + SETTLED;
  keep();
  if (done === 0 && about.guidelines.trim() && !shelf.get(`guided ${server.token}`)) showHelp();
}

function leaveQuestion() {
  shown = null;
  clock.stop();
  dialogs.close();
  part("question").hidden = true;
}

function showNothing() {
  const { why, done, left } = turn;
  leaveQuestion();
  shelf.put(`draft ${server.token}`, null);
  const saved = done === 0 ? [] : [done === 1 ? "Your answer is saved. Thank you." : `Your ${done} answers are saved. Thank you.`];
  const others = left === 1 ? "1 question is left, for other judges." : `${left} questions are left, for other judges.`;
  const words = {
    wait: ["No question for you right now", [...saved, others, "New questions will appear here. You can also close this page and come back later by the same link."]],
    quota: ["You have done your share", [...saved, "You can close this page."]],
    removed: ["You no longer take part", [...saved, "Whoever runs the study has ended your part in it."]],
    over: ["All done, thank you", [...saved, "All questions are answered, and the study is complete. Nothing more will happen here: you can close this page."]],
  }[why] ?? ["Nothing to do", saved];
  const asks = why === "wait";
  message(...words, asks ? "Check now" : why === "quota" ? "Is there more?" : "", lookAgain);
  if (!asks) return;
  look = look ? Math.min(1.5 * look, LAST_LOOK) : FIRST_LOOK;
  lookTimer = setTimeout(lookAgain, 1000 * look);
}

function lookAgain() {
  if (busy) {
    lookTimer = setTimeout(lookAgain, 1000);
    return;
  }
  act(async () => show(await fetched()));
}

function message(title, lines, does = "", onclick = null) {
  const again = part("message-title").textContent === title && !part("message").hidden;
  part("question").hidden = true;
  part("message").hidden = false;
  part("message-title").textContent = title;
  part("message-text").replaceChildren(...lines.map((text) => make("p", { text, dir: "auto" })));
  part("message-button").hidden = !does;
  part("message-button").textContent = does;
  part("message-button").onclick = onclick;
  titled(about ? `${title} · ${about.title}` : title);
  if (!again) part("message-title").focus();
}

function titled(text, anew = false) {
  document.title = anew ? `● ${text}` : text;
  if (!anew) return;
  const seen = () => {
    if (document.hidden) return;
    document.title = document.title.replace(/^● /, "");
    document.removeEventListener("visibilitychange", seen);
  };
  document.addEventListener("visibilitychange", seen);
  setTimeout(seen, 5000);
}

function showProgress() {
  const { name, done, quota, expected, undo } = turn;
  part("name").textContent = name;
  part("top").hidden = false;
  part("progress").max = Math.max(1, quota ?? expected);
  part("progress").value = done;
  part("count").textContent = `${done} of ${of(turn)}`;
  part("undo").disabled = !undo;
  showTime();
}

// How many answers there will be: as many as are asked for, or about.
function of({ quota, expected, why }) {
  return quota !== null || why === "over" ? String(quota ?? expected) : `about ${expected}`;
}

function showTime() {
  if (turn === null) return;
  const minutes = Math.floor((turn.seconds + (turn.question ? clock.seconds : 0)) / 60);
  const hours = Math.floor(minutes / 60);
  part("time").textContent = hours ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
}

function showNote() {
  part("note").classList.toggle("chosen", Boolean(note));
  part("note").querySelector("span").textContent = note ? "Note ✓" : "Note";
}

function showHelp() {
  shelf.put(`guided ${server.token}`, true);
  clock.stop(); // reading them is no time spent on an answer
  dialogs.help(about, shown?.keys ?? []);
}

const askSkip = () => shown && !busy && dialogs.skip(note);
const askNote = () => shown && !busy && dialogs.note(note);

// What is pressed

function wire() {
  for (const [id, does] of [["undo", undo], ["pause", () => pause()], ["help", showHelp], ["skip", askSkip], ["note", askNote]]) {
    part(id).addEventListener("click", does);
  }
  part("link-button").addEventListener("click", () => {
    server.again();
    renew();
  });
  document.addEventListener("keydown", pressed);
}

function pressed(event) {
  if (modified(event) || event.repeat || event.defaultPrevented || event.isComposing) return;
  if (document.querySelector("dialog[open]") || event.target.closest?.("input, textarea, select")) return;
  if (event.key === "Enter") {
    // Elsewhere, what has the focus takes it.
    const free = !event.target.closest?.("button, a") || event.target.matches(".handle");
    if (!free || busy || !shown?.onenter) return;
    event.preventDefault();
    return void shown.onenter();
  }
  if (!dialogs.keys) return;
  const does = { s: askSkip, u: undo, n: askNote, p: paused ? resume : pause, h: showHelp, "?": showHelp };
  const command = does[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!busy && shown?.onkey(event)) event.preventDefault();
  else if (command && about) {
    event.preventDefault();
    command();
  }
}

// The beginning

const askedToken = () => location.hash.slice(1);

function keepToken(token) {
  server.token = token;
  shelf.put("token", token);
  history.replaceState(null, "", `#${token}`);
}

async function begin() {
  const token = askedToken() || shelf.get("token");
  if (!token) return greet();
  keepToken(token);
  const kept = shelf.get(`sending ${token}`);
  const next = kept ? await deliver(kept.name, kept.body) : await fetched();
  about = await server.insist("about");
  part("title").textContent = about.title;
  show(next);
}

async function greet() {
  try {
    about = await server.insist("about");
  } catch (error) {
    if (error.status !== 401) throw error;
    return message("A link is needed", ["Open the link that you were given. It ends with “#” and letters that are yours alone."]);
  }
  part("join-title").textContent = about.title;
  document.title = about.title;
  part("message").hidden = true;
  part("join").hidden = false;
  part("join-name").focus();
}

part("join").addEventListener("submit", (event) => {
  event.preventDefault();
  act(async () => {
    part("join-wrong").textContent = "";
    try {
      const { token } = await server.call("join", { name: part("join-name").value.trim() });
      part("join").hidden = true;
      keepToken(token);
      await begin();
    } catch (error) {
      if (server.token) throw error;
      part("join-wrong").textContent = error.message || "No connection. Try again.";
      part("join-name").focus();
    }
  });
});

function renew() {
  if (!shown || busy || paused) return;
  if (clock.idle > LONG_IDLE) return pause("Nothing happened here for 15 minutes, so others may get your question. What you did so far is kept here.");
  const { id } = turn.question;
  server.call("renew", { question: id }).then(() => busy || away(null), (error) => {
    if (busy || paused || turn?.question?.id !== id) return;
    if (error instanceof Away) return away(error);
    act(async () => {
      if (error.status !== 409) throw error;
      warn(error.message);
      show(await fetched());
    });
  });
}

setInterval(renew, RENEWED);
addEventListener("online", renew);
document.addEventListener("visibilitychange", () => (document.hidden ? keep() : renew()));
setInterval(showTime, 10_000);
addEventListener("pagehide", keep);
addEventListener("pageshow", (event) => event.persisted && location.reload());
addEventListener("beforeunload", (event) => sending && event.preventDefault());
addEventListener("hashchange", () => askedToken() && askedToken() !== server.token && location.reload());
wire();
busy = false;
act(begin);
