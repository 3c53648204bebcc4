"use strict";
// How far a run is, asked for every two seconds while it goes on. A page that nobody sees asks nothing.
(async () => {
  const place = document.getElementById("status");
  const token = localStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  for (;;) {
    await new Promise((resume) => setTimeout(resume, 2000));
    if (document.hidden) continue;
    const answer = await fetch(place.dataset.from, { headers }).catch(() => null);
    if (answer !== null && answer.status === 205) return location.reload(); // nobody works on it any more
    if (answer === null || !answer.ok) {
      const note = document.createElement("p");
      note.className = "warning";
      note.setAttribute("role", "status");
      note.textContent = "No news of this run: reload this page to see how far it is.";
      return place.before(note);
    }
    place.innerHTML = await answer.text(); // made by the server as the page was: all escaped
  }
})();
