"use strict";
// The table of texts: sorts, filters, searches, and opens to the judgments behind a score. All that is
// shown goes into the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = document.getElementById("table");
  const PAGE = 50;
  const SHORT = 120;

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "text") element.textContent = value;
      else if (key === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
      else if (value !== false && value !== null) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  }

  const number = (value, digits = 2) => (value === null ? "–" : value.toFixed(digits).replace("-", "−"));
  const idOf = (at) => (at < data.items.length ? data.items[at].id : data.others[at - data.items.length]);
  const short = (text) => {
    const line = text.replace(/\s+/g, " ").trim();
    return line.length > SHORT ? line.slice(0, SHORT) + "…" : line;
  };

  const contested = ({ contested: value }) => {
    if (value === null || data.contested !== "z") return number(value);
    return (value > 2 ? "yes" : "no") + " (" + (value > 0 ? "+" : "") + number(value, 1) + ")";
  };

  const items = data.items.map((item, at) => ({
    ...item, at, searched: (item.id + "\n" + (item.text ?? "")).toLowerCase(),
    width: item.low === null || item.high === null ? null : item.high - item.low,
  }));
  const there = (key) => items.some((item) => item[key] !== null && (key !== "matches" || item[key] !== items[0][key]));
  // Each column shows an item's cell as text; only the id's cell is a button, which row() makes.
  const columns = [
    { key: "group", name: "Group", words: true, show: (item) => item.group },
    { key: "rank", name: "Rank", show: (item) => (item.rank === null ? "–" : item.rank.toLocaleString("en")) },
    { key: "id", name: "Item" },
    { key: "score", name: "Score (" + data.rating + ")", show: (item) => number(item.score) },
    { key: "width", name: "95 % interval", less: true, show: (item) => number(item.low) + " to " + number(item.high) },
    { key: "gold", name: "Gold", less: true, show: (item) => (item.gold === null ? "–" : String(item.gold)) },
    { key: "contested", name: "Contested", less: true, show: contested },
    { key: "matches", name: "Judgments", less: true, show: (item) => item.matches.toLocaleString("en") },
    { key: "text", name: "Text", show: (item) => short(item.text ?? "") },
  ].filter((column) => there(column.key));

  const state = { sort: columns[0].key, down: false, page: 0, printing: false, words: "", gold: "", open: new Set() };
  const compare = (a, b) => {
    const [x, y] = [a[state.sort], b[state.sort]];
    if (x === null || y === null) return x === y ? a.at - b.at : x === null ? 1 : -1;
    const order = typeof x === "string" ? x.localeCompare(y) : x - y;
    return (state.down ? -order : order) || a.at - b.at;
  };
  const listed = () => {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    return items
      .filter((item) => words.every((word) => item.searched.includes(word)))
      .filter((item) => state.gold === "" || String(item.gold) === state.gold)
      .sort(compare);
  };

  function judgment(item, [at, slot, residual]) {
    const one = data.judgments[at];
    const line = make("li");
    const facts = ["round " + one.round];
    if (one.judge !== null) facts.push("by " + one.judge);
    if (slot !== null && one.groups.flat().length > 1) facts.push("shown in position " + slot);
    if (one.score !== null) facts.push("score " + number(one.score));
    if (residual !== null) facts.push("argues " + (residual > 0 ? "+" : "") + residual.toFixed(1));
    line.append(facts.join(", ") + ": ");
    one.groups.forEach((group, place) => {
      if (place) line.append(" > ");
      const unknown = one.partial && group.length > 1;
      if (unknown) line.append("{");
      group.forEach((other, tied) => {
        if (tied) line.append(unknown ? ", " : " = ");
        line.append(other === item.at ? make("mark", { text: idOf(other) }) : make("bdi", { text: idOf(other) }));
      });
      if (unknown) line.append("} (order not asked)");
    });
    if (one.reason !== null) line.append(make("div", { class: "note", dir: "auto", text: "“" + one.reason + "”" }));
    return line;
  }

  function detail(item) {
    // As wide as what is seen of the table, which is wider than a phone.
    const cell = make("div", { class: "within" });
    const facts = columns.filter((column) => column.less).map((column) => column.name + " " + column.show(item));
    if (facts.length) cell.append(make("p", { class: "note facts", text: facts.join(", ") }));
    if (item.text !== null) {
      cell.append(make("div", { class: "whole-text", dir: "auto", tabindex: 0, role: "region", "aria-label": "The text of " + item.id, text: item.text }));
      if (item.cut) cell.append(make("p", { class: "note", text: "The text is longer." }));
    }
    if (item.judgments.length) {
      const help = "Most of the feature first. Argues: above 0 for a higher place, below 0 for a lower one, in standard deviations.";
      cell.append(make("p", { class: "note", text: help }));
      const sorted = item.judgments.map((one, at) => [one, at]);
      sorted.sort((a, b) => Math.abs(b[0][2] ?? 0) - Math.abs(a[0][2] ?? 0) || a[1] - b[1]);
      cell.append(make("ol", {}, ...sorted.map(([one]) => judgment(item, one))));
    } else cell.append(make("p", { class: "note", text: "It was never judged." }));
    if (item.more) cell.append(make("p", { class: "note", text: item.more.toLocaleString("en") + " more judgments: judgeq explain lists them." }));
    return make("tr", { class: "detail", id: "detail-" + item.at }, make("td", { colspan: columns.length }, cell));
  }

  function row(item) {
    const open = state.open.has(item.at);
    const cells = columns.map(({ key, less, words, show }) => {
      if (key === "id") {
        const button = make("button", {
          type: "button", "aria-expanded": String(open), "aria-controls": open ? "detail-" + item.at : null, "data-item": item.at,
          text: item.id || "(no id)",
          on: { click: () => { open ? state.open.delete(item.at) : state.open.add(item.at); draw("[data-item='" + item.at + "']"); } },
        });
        return make("td", { class: item.id.length > 24 ? "id" : "id short", dir: "auto" }, button);
      }
      const kind = key === "text" ? "text" : words ? "group" : less ? "number less" : "number";
      return make("td", { class: kind, dir: "auto", text: show(item) });
    });
    const rows = [make("tr", {}, ...cells)];
    if (open) rows.push(detail(item));
    return rows;
  }

  function heads() {
    return make("tr", {}, ...columns.map(({ key, name, less }) => {
      const sorted = state.sort === key;
      const button = make("button", {
        type: "button", "data-sort": key, text: name + (sorted ? (state.down ? " ↓" : " ↑") : ""),
        on: { click: () => { state.down = sorted ? !state.down : !["rank", "group", "id", "text"].includes(key); state.sort = key; state.page = 0; draw("[data-sort='" + key + "']"); } },
      });
      const numeric = !["text", "id", "group"].includes(key);
      return make("th", { scope: "col", class: !numeric ? null : less ? "number less" : "number", "aria-sort": sorted ? (state.down ? "descending" : "ascending") : null }, button);
    }));
  }

  const count = make("p", { role: "status", class: "note" });
  const table = make("table");
  const pages = make("div", { class: "pages" });
  const printed = make("p", { class: "printed" });

  function draw(focus) {
    const rows = listed();
    const last = Math.max(0, Math.ceil(rows.length / PAGE) - 1);
    state.page = Math.min(state.page, last);
    const begin = state.printing ? 0 : state.page * PAGE;
    const shown = rows.slice(begin, state.printing ? rows.length : begin + PAGE);
    table.replaceChildren(
      make("thead", {}, heads()),
      make("tbody", {}, ...shown.flatMap(row)),
    );
    const all = rows.length.toLocaleString("en");
    count.textContent = rows.length ? (begin + 1).toLocaleString("en") + " to " + (begin + shown.length).toLocaleString("en") + " of " + all : "No text matches.";
    printed.textContent = shown.length < items.length ? "Printed are " + shown.length.toLocaleString("en") + " of " + items.length.toLocaleString("en") + " texts: those that the search found. scores.csv lists all." : "";
    const turn = (by) => ({ click: () => { state.page += by; draw("[data-turn='" + by + "']"); } });
    pages.replaceChildren(
      make("button", { type: "button", "data-turn": -1, disabled: state.page === 0, text: "Earlier", on: turn(-1) }),
      make("button", { type: "button", "data-turn": 1, disabled: state.page === last, text: "Later", on: turn(1) }),
    );
    if (focus) {
      const wanted = place.querySelector(focus);
      (wanted && !wanted.disabled ? wanted : pages.querySelector("button:not([disabled])"))?.focus();
    }
  }

  const CONTESTED = {
    z: "Contested: yes if the comparisons of a text contradict one another more than chance explains (standardised infit above 2).",
  };
  const search = make("input", { type: "search", on: { input: (event) => { state.words = event.target.value; state.page = 0; draw(); } } });
  const controls = make("div", { class: "controls" }, make("label", {}, "Search ids and texts", search));
  const labels = [...new Set(items.map((item) => item.gold).filter((gold) => gold !== null))].sort((a, b) => a - b);
  if (labels.length > 1 && labels.length <= 12) {
    const options = [make("option", { value: "", text: "all" }), ...labels.map((gold) => make("option", { value: String(gold), text: String(gold) }))];
    const select = make("select", { on: { change: (event) => { state.gold = event.target.value; state.page = 0; draw(); } } }, ...options);
    controls.append(make("label", {}, "Gold label", select));
  }
  const help = columns.some(({ key }) => key === "contested") ? [make("p", { class: "note", text: CONTESTED[data.contested] })] : [];
  // On paper all are there: no page can be turned.
  const print = matchMedia("print");
  const paper = (on) => () => { state.printing = on ?? print.matches; draw(); };
  addEventListener("beforeprint", paper(true));
  addEventListener("afterprint", paper(false));
  print.addEventListener("change", paper());
  place.append(...help, controls, count, make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "The items" }, table), printed, pages);
  draw();

  for (const block of document.querySelectorAll("figure.block")) {
    const text = block.querySelector("pre");
    const button = make("button", { type: "button", class: "copy", text: "Copy", "aria-label": "Copy: " + block.querySelector("figcaption").textContent });
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
        button.textContent = "Selected: press Ctrl-C";
      }
    });
    block.querySelector("figcaption").append(" ", button);
  }
})();
