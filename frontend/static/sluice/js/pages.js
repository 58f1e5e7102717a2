// What every page shares: dialogs, copy buttons, forms sent once, keys to neighbours. It is read
// before the first button is drawn, so that none is pressed in vain.
"use strict";

const COPIED_MS = 2000;

function whenRead(work) {
  document.addEventListener("DOMContentLoaded", work, { once: true });
}

function openDialog(button) {
  if (document.readyState === "loading") { whenRead(() => openDialog(button)); return; }
  const dialog = document.getElementById(button.dataset.opens);
  // What came up since the page was made has its dialog on a new one.
  if (!dialog) { location.reload(); return; }
  const form = dialog.querySelector("[data-action-target]");
  if (form) form.action = button.dataset.action;
  const names = dialog.querySelector("[data-names-target]");
  if (names) names.textContent = button.dataset.names;
  dialog.showModal();
}

/** Scroll the list of pages, not the page, to where the reader is. */
function showHere() {
  const list = document.querySelector(".nav");
  const here = list?.querySelector("[aria-current]");
  if (!here) return;
  const [frame, link] = [list, here].map((one) => one.getBoundingClientRect());
  list.scrollBy(
    link.left - frame.left - (frame.width - link.width) / 2,
    link.top - frame.top - (frame.height - link.height) / 2,
  );
}

async function copyText(button) {
  const source = document.getElementById(button.dataset.copies);
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "Copied";
  } catch {
    // Without a secure context there is no clipboard: select the text, so that Ctrl-C takes it.
    getSelection().selectAllChildren(source);
    button.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = before; }, COPIED_MS);
}

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) openDialog(opener);
  const closer = event.target.closest("[data-closes]");
  if (closer) closer.closest("dialog").close();
  const copier = event.target.closest("[data-copies]");
  if (copier) copyText(copier);
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// A second click would replace the answer to the first, and with it a secret shown only once.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});

// A form tells which organization its page showed: another tab may have switched since.
document.addEventListener("formdata", (event) => {
  const shown = document.body.dataset.organization;
  if (shown && event.target.method === "post") event.formData.set("organization_shown", shown);
});

addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("[data-sent]")) delete form.dataset.sent;
});

// j and k go to the neighbours, Escape goes back; none of them while something is being typed.
const KEY_LINKS = { j: "[rel='next']", k: "[rel='prev']", Escape: "[data-back]" };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog[open]")) return;
  const link = document.querySelector(KEY_LINKS[event.key] ?? ":not(*)");
  if (!link) return;
  event.preventDefault();
  link.click();
});

whenRead(() => {
  showHere();
  document.querySelector("form[data-goes-on]")?.requestSubmit();
  document.querySelector("dialog[data-open]")?.showModal();
  document.querySelector("[data-focus]")?.focus();
});
