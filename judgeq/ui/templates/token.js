"use strict";
// If a token is needed, this page asks for what is at its address, with the token of the link that was
// opened, in a header (a cookie would be sent to every port of this machine). Then it becomes that page.
(async () => {
  const [title, main] = [document.querySelector("h1"), document.querySelector("main")];
  const refused = title.textContent;
  // Whole: a path that begins with two slashes would name another server.
  const here = location.origin + location.pathname + location.search;
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  title.textContent = "One moment";
  main.hidden = true;
  for (const token of [given, localStorage.getItem("token")].filter(Boolean)) {
    const answer = await fetch(here, { headers: { Authorization: `Bearer ${token}` } });
    if (answer.status === 401) continue;
    localStorage.setItem("token", token);
    if (given) history.replaceState(null, "", here);
    const page = await answer.text();
    document.open();
    document.write(page);
    document.close();
    return;
  }
  title.textContent = refused;
  main.hidden = false;
})();
