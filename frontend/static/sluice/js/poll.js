// A part of the page that asks for itself anew while it is in sight, and takes what has changed.

const part = document.querySelector("[data-poll]");
const panel = document.getElementById("poll");
const words = panel.querySelector("[data-live-words]");
const status = panel.querySelector("[data-live-status]");
const toggle = panel.querySelector("[data-live-toggle]");
const PERIOD_MS = Number(part.dataset.poll);
// After a failure it asks this much more seldom, until it is answered again.
const SLOWER_MAX = 8;
let paused = false;
let asking = false;
let ended = false;
let slower = 1;
let waited = 0;

// Screen readers hear changes of state, never each answer.
function setState(state, text) {
  if (panel.dataset.liveState === state && words.textContent === text) return;
  if (panel.dataset.liveState !== state) status.textContent = `Live figures: ${text}`;
  panel.dataset.liveState = state;
  words.textContent = text;
}

function ask() {
  waited += 1;
  if (paused || asking || ended || document.hidden || document.querySelector("dialog[open]") || waited < slower) return;
  waited = 0;
  asking = true;
  window.htmx.trigger(part, "poll");
}

/** What a part, row or button is known by from answer to answer; null where its place tells. */
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return null;
  return node.id || node.getAttribute("aria-labelledby") || node.dataset.action || node.querySelector(":scope > th[scope='row']")?.textContent.trim() || null;
}

function takeAttributes(old, fresh) {
  // What its reader opened stays open, and a form that is on its way is not sent twice.
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !["open", "data-sent"].includes(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
}

function takeChildren(old, fresh) {
  const plain = [...old.childNodes].filter((each) => keyOf(each) === null);
  const known = new Map([...old.childNodes].map((each) => [keyOf(each), each]));
  known.delete(null);
  let last = null;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    const twin = key === null ? plain.shift() : known.get(key);
    known.delete(key);
    if (twin) last = take(twin, child);
    else {
      if (last) last.after(child); else old.prepend(child);
      last = child;
    }
  }
  for (const gone of [...plain, ...known.values()]) gone.remove();
}

/** Makes `old` what `fresh` is and changes nothing else: what has the focus, is pressed, marked,
    half typed or sorted stays. Returns what is there now. */
function take(old, fresh) {
  // Heads that sort have buttons of their own.
  if (old.isEqualNode(fresh) || (old.nodeName === "THEAD" && old.textContent.trim() === fresh.textContent.trim())) return old;
  if (old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return fresh; }
  if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = fresh.nodeValue; return old; }
  takeAttributes(old, fresh);
  takeChildren(old, fresh);
  return old;
}

part.addEventListener("htmx:beforeSwap", (event) => {
  event.detail.shouldSwap = false;
  // An answer from another address is the way to sign in.
  ended = new URL(event.detail.xhr.responseURL).pathname !== location.pathname;
  if (ended || event.detail.xhr.status !== 200) return;
  const fresh = document.createElement("template");
  fresh.innerHTML = event.detail.serverResponse;
  takeChildren(part, fresh.content);
});

part.addEventListener("htmx:afterRequest", (event) => {
  asking = false;
  if (ended) setState("lost", "signed out: reload");
  else if (event.detail.successful) setState("on", "live");
  else setState("lost", "no answer, trying again");
  slower = event.detail.successful ? 1 : Math.min(slower * 2, SLOWER_MAX);
});

toggle.addEventListener("click", () => {
  paused = !paused;
  toggle.textContent = paused ? "Resume" : "Pause";
  toggle.setAttribute("aria-pressed", String(paused));
  setState(paused ? "off" : "on", paused ? "paused" : "live");
});

setState("on", "live");
setInterval(ask, PERIOD_MS);
