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

function openFinder() {
  const finder = document.getElementById("finder");
  if (!finder) return;
  finder.showModal();
  // What was sought before is sought again: it may be there by now.
  finder.querySelector("input").dispatchEvent(new Event("finder-opened"));
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
  if (event.target.closest("[data-finder]") && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    openFinder();
  }
  const closer = event.target.closest("[data-closes]");
  if (closer) closer.closest("dialog").close();
  const copier = event.target.closest("[data-copies]");
  if (copier) copyText(copier);
  const menu = event.target.closest("[data-menu]");
  if (menu) menu.setAttribute("aria-expanded", String(menu.ariaExpanded !== "true"));
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

/** A row opens what its head links to; what can be pressed or marked in it stays as it is. */
document.addEventListener("click", (event) => {
  const link = event.target.closest("tbody tr")?.querySelector("th[scope='row'] > a:only-child");
  if (!link || event.target.closest("a, button, input, select, label, summary") || String(getSelection())) return;
  if (event.ctrlKey || event.metaKey) window.open(link.href, "_blank", "noopener");
  else link.click();
});

/** Ctrl-K searches from anywhere; in what was found the arrows move, and Enter opens the first. */
document.addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
    if (document.querySelector("dialog[open]")) return;
    event.preventDefault();
    openFinder();
    return;
  }
  const dialog = event.target.closest("#finder");
  if (!dialog || !["ArrowDown", "ArrowUp", "Enter"].includes(event.key)) return;
  const places = [...dialog.querySelectorAll("input, .found a")];
  const at = places.indexOf(event.target);
  if (event.key === "Enter") {
    // Before anything is found, the form is sent to the page of results.
    if (at !== 0 || places.length === 1) return;
    event.preventDefault();
    places[1].click();
    return;
  }
  event.preventDefault();
  const step = event.key === "ArrowDown" ? 1 : -1;
  places[(at + step + places.length) % places.length].focus();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog[open]")) return;
  const link = document.querySelector(KEY_LINKS[event.key] ?? ":not(*)");
  if (!link) return;
  event.preventDefault();
  link.click();
});

whenRead(() => {
  document.querySelector("form[data-goes-on]")?.requestSubmit();
  document.querySelector("dialog[data-open]")?.showModal();
  document.querySelector("[data-focus]")?.focus();
});
