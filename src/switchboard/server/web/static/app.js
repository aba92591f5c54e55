"use strict";
/* Parts of a page with data-live are fetched again by htmx when /ui/events rings one of their bells. */
(() => {
  const bar = document.getElementById("live");
  if (!bar || !document.querySelector("[data-live]")) return;
  const due = new Set(), touched = new Set();
  let source, heard = Date.now(), broken = 0, again = 0, older = false;
  htmx.config.morphIgnore.push("open"); // details that a reader has opened stay open

  const tell = (text) => { bar.textContent = text; bar.hidden = !text; };
  const stop = () => { source?.close(); source = null; };
  const renew = (part) => { due.delete(part); part.dispatchEvent(new Event("live")); };
  const ring = (bells) => {
    for (const part of document.querySelectorAll("[data-live]"))
      if (!bells || part.dataset.live.split(" ").some((one) => bells.includes(one))) renew(part);
  };
  const lose = (ms, text) => {
    stop();
    broken ||= Date.now();
    again = Date.now() + ms;
    if (text) tell("Not live: " + text);
  };

  function connect() {
    stop();
    source = new EventSource("/ui/events");
    again = Date.now() + 10000; // it may hang
    const on = (name, act) => source.addEventListener(name, (event) => { heard = Date.now(); act(event.data.split(" ")); });
    on("live", () => { broken = again = 0; tell(""); ring(); });
    on("bells", ring);
    on("ping", () => {});
    on("full", ([most]) => lose(5000, `${most} other windows are. Close one, and this one will be.`));
    on("signed-out", () => lose(10000, "you are signed out. Sign in again in another tab; what you entered here stays."));
    source.onerror = () => lose(1000 + 500 * Math.random());
  }

  function look() {
    if (document.hidden) return;
    const now = Date.now();
    if (again && now > again) connect();
    if (bar.hidden && (now - heard > 25000 || (broken && now - broken > 5000)))
      tell(`Not live since ${new Date(heard).toTimeString().slice(0, 5)}: the server or its database does not answer. This page keeps trying.`);
    if (!broken) due.forEach(renew);
  }

  document.addEventListener("visibilitychange", () => { stop(); heard = Date.now(); again = 1; look(); });
  addEventListener("pagehide", stop);
  document.addEventListener("input", (event) => touched.add(event.target));

  const rows = (part) => [...part.querySelectorAll(".rows > li[id]")];
  const note = (place, text) => {
    const link = document.createElement("a");
    link.className = "newer";
    link.href = location.pathname + location.search;
    link.textContent = text;
    place.before(link);
  };

  /* What was fetched, before it is shown: no row moves under a reader, and nothing that somebody enters is touched. */
  document.addEventListener("htmx:before:swap", (event) => {
    const { ctx, tasks } = event.detail, part = ctx.sourceElement;
    if (!part.dataset?.live) { older ||= Boolean(part.closest?.(".pages")); return; }
    const next = tasks.find((one) => one.type === "main")?.fragment.firstElementChild;
    if (ctx.response.status !== 200 || !next) {
      if (ctx.response.status === 503) due.add(part);
      event.preventDefault();
      return;
    }
    const known = rows(part), ids = new Set(known.map((row) => row.id)), fresh = new Map(rows(next).map((row) => [row.id, row]));
    const newer = [...fresh.keys()].filter((id) => !ids.has(id)).length, list = next.querySelector(".rows");
    if ([...touched, document.activeElement].some((one) => part.contains(one) && one.matches("input, textarea, select"))) {
      event.preventDefault();
      part.querySelector(".newer")?.remove();
      if (newer || part.textContent.trim() !== next.textContent.trim())
        note(part.firstElementChild, newer ? `${newer} newer` : "Something here has changed");
    } else if (known.length && list && (scrollY > 8 || older)) {
      list.replaceChildren(...known.map((row) => fresh.get(row.id) || row.cloneNode(true)));
      const pages = part.querySelector(".pages");
      if (pages) next.querySelector(".pages")?.replaceWith(pages.cloneNode(true));
      if (newer) note(list, `${newer} newer`);
    }
  });
  document.addEventListener("htmx:error", ({ detail: { ctx } }) => { if (ctx?.sourceElement?.dataset?.live) due.add(ctx.sourceElement); });
  document.addEventListener("htmx:after:swap", ({ detail: { ctx } }) => {
    if (ctx.sourceElement.id !== "waits") return;
    const number = document.querySelector("#waits a")?.firstChild.data;
    document.title = (number ? `(${number}) ` : "") + document.title.replace(/^\(\d+\+?\) /, "");
  });

  setInterval(look, 1000);
  if (!document.hidden) connect();
})();

/* Chat: Enter sends where there is a keyboard, the view follows new text while it is at the end, files are not too large. */
(() => {
  const box = document.getElementById("box"), text = box?.querySelector("textarea"), files = box?.querySelector("[type=file]");
  if (!box) return;
  const page = document.documentElement, keys = !matchMedia("(pointer: coarse)").matches;
  const toEnd = () => scrollTo(0, page.scrollHeight);
  let atEnd = !new URLSearchParams(location.search).has("cursor");
  addEventListener("scroll", () => { atEnd = innerHeight + scrollY > page.scrollHeight - 60; });
  new MutationObserver(() => { if (atEnd) toEnd(); }).observe(box.parentNode, { childList: true, subtree: true, characterData: true });
  text.addEventListener("keydown", (event) => {
    if (!keys || event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    if (text.value.trim() || files.files.length) box.requestSubmit();
  });
  files.addEventListener("change", () => {
    const all = [...files.files], bytes = all.reduce((sum, file) => sum + file.size, 0);
    const many = all.length > files.dataset.mostFiles, large = bytes > files.dataset.mostBytes;
    files.setCustomValidity(many ? `At most ${files.dataset.mostFiles} files go with a message.` : large ? "These files are too large together." : "");
    files.reportValidity();
  });
  /* htmx connects a stream again, but not one that could not be opened at first. */
  document.addEventListener("htmx:error", ({ target }) => {
    if (target.matches?.(".going")) setTimeout(() => target.dispatchEvent(new Event("again")), 2000);
  });
  if (atEnd) toEnd();
  if (keys) text.focus({ preventScroll: true });
})();
