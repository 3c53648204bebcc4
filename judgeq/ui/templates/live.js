"use strict";
// The progress of a run, asked for every two seconds while it is worked on. A hidden page asks nothing.
(async () => {
  const place = document.getElementById("status");
  const token = localStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  for (;;) {
    await new Promise((resume) => setTimeout(resume, 2000));
    if (document.hidden) continue;
    const answer = await fetch(place.dataset.from, { headers }).catch(() => null);
    if (answer !== null && answer.status === 205) return location.reload(); // no process works on it any more
    if (answer === null || !answer.ok) {
      const note = document.createElement("p");
      note.className = "warning";
      note.setAttribute("role", "status");
      note.textContent = "Connection lost. Reload this page to see the run's progress.";
      return place.before(note);
    }
    place.innerHTML = await answer.text(); // made by the server as the page was: all escaped
  }
})();
