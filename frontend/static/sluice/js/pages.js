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
  const filler = event.target.closest("[data-fills]");
  if (filler) {
    const field = document.getElementById(filler.dataset.fills);
    field.value = filler.dataset.value;
    field.focus();
  }
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

// j and k go to the neighbours, Escape goes back, ? tells the keys; none while something is being typed.
const KEY_LINKS = { j: "[rel='next']", k: "[rel='prev']", Escape: "[data-back]", "?": "[data-finder]" };

// Pages tell UTC; under the pointer a time is told as the reader's clock has it.
document.addEventListener("pointerover", (event) => {
  const time = event.target.closest("time[datetime]");
  if (time) time.title ||= new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
});

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

const UNITS = {
  "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86_400,
  KB: 1e3, MB: 1e6, GB: 1e9, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, K: 1e3, M: 1e6,
};

/** What a cell sorts by: its time, its amount in a unit, or its text; null for none. */
function cellKey(cell) {
  const time = cell?.querySelector("time")?.dateTime;
  if (time) return Date.parse(time);
  const text = (cell?.querySelector("[title^='$']") ?? cell)?.textContent.trim().replace(/\s+/g, " ") ?? "";
  if (text === "" || text === "–") return null;
  const found = text.match(/^[<~$]*([-−]?[\d,]*\.?\d+)\s?([a-zµ]+)?/i);
  if (!found || !cell.classList.contains("number")) return text.toLowerCase();
  return Number(found[1].replaceAll(",", "").replace("−", "-")) * (UNITS[found[2]] ?? 1);
}

function compareKeys(one, other) {
  if (typeof one === typeof other && typeof one === "number") return one - other;
  return String(one).localeCompare(String(other), "en", { numeric: true });
}

/** Orders the rows by the column of this button; rows without a value stay last. */
function sortRows(button) {
  const head = button.closest("th");
  const up = head.ariaSort ? head.ariaSort !== "ascending" : !head.classList.contains("number");
  for (const each of head.parentElement.children) each.ariaSort = each === head ? (up ? "ascending" : "descending") : null;
  const body = head.closest("table").tBodies[0];
  const rows = [...body.rows].map((row) => [cellKey(row.cells[head.cellIndex]), row]);
  rows.sort(([one], [other]) => (one === null) - (other === null) || (up ? 1 : -1) * compareKeys(one, other));
  body.append(...rows.map(([, row]) => row));
}

/** Heads sort whole tables: not lists of many pages, and none whose rows belong together. */
function makeSortable() {
  if (document.querySelector("main a[rel='next']") || /[?&](after|before)=/.test(location.search)) return;
  for (const table of document.querySelectorAll("main table.dense")) {
    if (table.tBodies.length !== 1 || table.tBodies[0].rows.length < 2) continue;
    if (table.tBodies[0].querySelector("[colspan], [rowspan]")) continue;
    for (const head of table.tHead.rows[0].cells) {
      if (head.ariaHidden || head.querySelector(".sr, a") || !head.textContent.trim()) continue;
      const button = Object.assign(document.createElement("button"), { type: "button", className: "sorts" });
      button.append(...head.childNodes);
      button.addEventListener("click", () => sortRows(button));
      head.append(button);
    }
  }
}

/** The form of this path as it was sent: rows may have one each, which differ in what is hidden. */
function refusedForm(path, fields) {
  const opener = document.querySelector(`[data-opens][data-action="${CSS.escape(path)}"]`);
  if (opener) { openDialog(opener); return document.getElementById(opener.dataset.opens)?.querySelector("form"); }
  return [...document.querySelectorAll("form[method='post']")].find((form) =>
    new URL(form.getAttribute("action") ?? "", location.href).pathname === path
    && [...form.querySelectorAll("input[type='hidden'][name]")].every((each) =>
      each.name === "csrfmiddlewaretoken" || fields[each.name]?.includes(each.value)));
}

function typeAgain(form, fields) {
  const left = Object.fromEntries(Object.entries(fields).map(([name, values]) => [name, [...values]]));
  for (const input of form.elements) {
    // What a button says it does is not what was typed.
    if (!input.name || ["hidden", "password", "submit", "button", "file"].includes(input.type)) continue;
    const values = fields[input.name] ?? [];
    if (["checkbox", "radio"].includes(input.type)) input.checked = values.includes(input.value);
    else if (left[input.name]?.length) input.value = left[input.name].shift();
  }
}

/** A refused form is open again with what was typed, and each error stands beside its field. */
function showRefused() {
  const source = document.getElementById("refused");
  if (!source) return;
  const { path, fields, errors } = JSON.parse(source.textContent);
  const form = refusedForm(path, fields);
  if (!form) return;
  if (Object.keys(fields).length) typeAgain(form, fields);
  const dialog = form.closest("dialog");
  if (dialog && !dialog.open) dialog.showModal();
  const lines = [...document.querySelectorAll("[data-refused-told]")];
  let first = null;
  for (const [at, [name, words]] of Object.entries(errors).entries()) {
    const input = [...form.elements].find((each) => each.name === name && each.type !== "hidden");
    if (!input) { if (dialog) form.prepend(lines[at]); continue; }
    const told = Object.assign(document.createElement("p"), { id: `refused-${at}`, className: "errorlist" });
    told.textContent = words.join(" ");
    (input.closest(".field") ?? input).append(told);
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", told.id);
    input.closest("details")?.setAttribute("open", "");
    lines[at].remove();
    first ??= input;
  }
  first?.focus();
}

whenRead(() => {
  makeSortable();
  showRefused();
  document.querySelector("form[data-goes-on]")?.requestSubmit();
  document.querySelector("dialog[data-open]")?.showModal();
  document.querySelector("[data-focus]")?.focus();
});
