"use strict";
/* Parts of a page with data-live are fetched again by htmx when /ui/events rings one of their bells. */
(() => {
  const doc = document, bar = doc.getElementById("live"), nonce = doc.querySelector("script[nonce]")?.nonce;
  /* hx-csp does not look at an element that has hx-sse:connect alone. */
  doc.addEventListener("htmx:config:request", (event) => {
    if (!nonce || event.target.getAttribute("hx-nonce") !== nonce) event.preventDefault();
  });
  /* hx-csp gives what comes by a request the nonce of the page, but not what comes by a stream. */
  doc.addEventListener("htmx:sse:before:message", ({ detail: { message } }) => {
    const [whole, own] = /^<hx-partial [^>]*hx-nonce="([^"]+)"/.exec(message.data) || [];
    if (whole) message.data = message.data.replaceAll(`hx-nonce="${own}"`, `hx-nonce="${nonce}"`);
  });
  /* What takes a while says so; a page that comes back from the history does not. */
  doc.addEventListener("submit", ({ target, submitter, defaultPrevented }) => {
    if (!defaultPrevented) (submitter || target.querySelector("button"))?.setAttribute("aria-busy", "true");
  });
  addEventListener("pageshow", ({ persisted }) => {
    if (persisted) for (const one of doc.querySelectorAll("[aria-busy]")) one.removeAttribute("aria-busy");
  });
  if (!bar || !doc.querySelector("[data-live]")) return;
  const touched = new Set();
  let source, heard = Date.now(), broken = 0, again = 1, older = false;
  /* What a reader has unfolded stays open. */
  htmx.config.morphIgnore.push("open");

  const tell = (text) => { bar.textContent = text; bar.hidden = !text; };
  const stop = () => { source?.close(); source = null; };
  const ring = (bells) => {
    for (const part of doc.querySelectorAll("[data-live]"))
      if (!bells || part.dataset.live.split(" ").some((one) => bells.includes(one))) part.dispatchEvent(new Event("live"));
  };
  const lose = (ms, text) => {
    stop();
    broken ||= Date.now();
    again = Date.now() + ms;
    if (text) tell("Not live: " + text);
  };
  const connect = () => {
    stop();
    source = new EventSource("/ui/events");
    again = Date.now() + 10000;
    const on = (name, act) => source.addEventListener(name, ({ data }) => { heard = Date.now(); act(data.split(" ")); });
    on("live", () => { broken = again = 0; tell(""); ring(); });
    on("bells", ring);
    on("ping", () => {});
    on("full", ([most]) => lose(5000, `${most} other windows are; close one.`));
    on("signed-out", () => lose(10000, "you are signed out. Sign in in another tab; what you entered stays."));
    source.onerror = () => lose(1000 + 500 * Math.random());
  };
  const look = () => {
    if (doc.hidden) return;
    const now = Date.now();
    if (again && now > again) connect();
    if (bar.hidden && (now - heard > 25000 || (broken && now - broken > 5000)))
      tell(`Not live since ${new Date(heard).toTimeString().slice(0, 5)}: the server or its database does not answer.`);
  };
  doc.addEventListener("visibilitychange", () => { stop(); heard = Date.now(); again = 1; look(); });
  doc.addEventListener("input", ({ target }) => touched.add(target));

  const rows = (part) => new Map([...part.querySelectorAll(".rows > li[id]")].map((row) => [row.id, row]));
  const note = (place, textContent) =>
    place.before(Object.assign(doc.createElement("a"), { className: "newer", href: location.pathname + location.search, textContent }));

  /* What was fetched, before it is shown: no row moves under a reader, and nothing that somebody enters is touched. */
  doc.addEventListener("htmx:before:swap", (event) => {
    const { ctx, tasks } = event.detail, part = ctx.sourceElement;
    if (!part.dataset?.live) { older ||= !!part.closest?.(".pages"); return; }
    const next = tasks.find((one) => one.type === "main")?.fragment.firstElementChild, { status } = ctx.response;
    if (status === 503) lose(2000);
    if (status !== 200 || !next) return event.preventDefault();
    const known = rows(part), fresh = rows(next), list = next.querySelector(".rows");
    const newer = [...fresh.keys()].filter((id) => !known.has(id)).length;
    if ([...touched, doc.activeElement].some((one) => part.contains(one) && one.matches("input, textarea, select"))) {
      event.preventDefault();
      part.querySelector(".newer")?.remove();
      if (newer || part.textContent.trim() !== next.textContent.trim())
        note(part.firstElementChild, newer ? `${newer} newer` : "Something here has changed");
    } else if (known.size && list && (scrollY > 8 || older)) {
      list.replaceChildren(...[...known].map(([id, row]) => fresh.get(id) || row.cloneNode(true)));
      const pages = part.querySelector(".pages");
      if (pages) next.querySelector(".pages")?.replaceWith(pages.cloneNode(true));
      if (newer) note(list, `${newer} newer`);
    }
  });
  doc.addEventListener("htmx:error", ({ detail: { ctx } }) => { if (ctx?.sourceElement?.dataset?.live) lose(2000); });
  doc.addEventListener("htmx:after:swap", ({ detail: { ctx } }) => {
    if (ctx.sourceElement.id !== "waits") return;
    const number = doc.querySelector("#waits a")?.firstChild.data;
    doc.title = (number ? `(${number}) ` : "") + doc.title.replace(/^\(\d+\+?\) /, "");
  });

  setInterval(look, 1000);
  look();
})();
