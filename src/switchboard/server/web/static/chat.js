"use strict";
/* Chat: Enter sends where there is a keyboard, the view follows new text while it is at the end, files are not too large. */
(() => {
  const box = document.getElementById("box"), text = box?.querySelector("textarea"), files = box?.querySelector("[type=file]");
  if (!box) return;
  const page = document.documentElement, keys = !matchMedia("(pointer: coarse)").matches;
  const toEnd = () => scrollTo(0, page.scrollHeight);
  const alone = document.body.classList.contains("talking"); // elsewhere the end of the page is not that of the chat
  let atEnd = alone && !new URLSearchParams(location.search).has("cursor");
  addEventListener("scroll", () => { atEnd = alone && innerHeight + scrollY > page.scrollHeight - 60; });
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
  if (keys && location.hash !== "#model") text.focus({ preventScroll: true });
})();
