"use strict";
// The progress of a run that goes on: the numbers of the dashboard, as the server sees them. All that is
// shown goes into the page as text, never as markup.
(() => {
  const place = document.getElementById("live");
  const part = (name) => document.getElementById("live-" + name);

  function make(name, text, ...children) {
    const element = document.createElement(name);
    if (text !== null) element.textContent = text;
    element.append(...children);
    return element;
  }

  function bar({ name, done, total, text }) {
    const progress = make("progress", text);
    progress.max = total;
    progress.value = done;
    return make("label", null, make("span", name), make("span", text), progress);
  }

  function ends(rows) {
    const head = ["", "Rating", "Item", "Text"].map((name) => {
      const cell = make(name ? "th" : "td", name);
      if (name) cell.scope = "col";
      return cell;
    });
    const body = rows.map((row) => make("tr", null, ...row.map((text) => {
      const cell = make("td", text);
      cell.dir = "auto";
      return cell;
    })));
    return make("table", null, make("thead", null, make("tr", null, ...head)), make("tbody", null, ...body));
  }

  function show(frame) {
    place.hidden = false;
    if (part("state").textContent !== frame.state) part("state").textContent = frame.state;
    part("bars").replaceChildren(...frame.bars.map(bar));
    part("figures").replaceChildren(...frame.figures.flatMap(([name, text]) => [make("dt", name), make("dd", text)]));
    part("ends").replaceChildren(...(frame.ends.length ? [ends(frame.ends)] : []));
    part("ends").hidden = !frame.ends.length;
    part("notices").replaceChildren(...frame.notices.map((text) => make("li", text)));
    part("notices").hidden = !frame.notices.length;
  }

  let source = null;
  let over = false;
  function close() {
    if (source !== null) source.close();
    source = null;
  }
  function open() {
    if (source !== null || over) return;
    source = new EventSource(place.dataset.events);
    source.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      show(frame);
      if (!frame.ended) return;
      over = true;
      close();
      const link = make("a", "Show the run as it is now");
      link.href = location.pathname;
      part("state").append(" ", link);
    };
    // Refused (too many pages look on): the browser doesn't try again.
    source.onerror = () => {
      if (source === null || source.readyState !== EventSource.CLOSED) return;
      place.hidden = false;
      part("state").textContent = "No live progress now: reload this page to see how far the run is.";
      close();
    };
  }
  // A browser keeps few connections to one server: a page that nobody sees needs none.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
})();
