// A part of the page that asks for itself anew: while it is in sight, and nobody works in it.

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

// What has the focus, or is being filled in, is never replaced; unless nothing can be filled in
// there: what has an id gets the focus again.
function inUse() {
  const held = document.activeElement;
  const kept = "pollKeeps" in part.dataset && held.id !== "";
  return (part.contains(held) && !kept) || document.querySelector("dialog[open]") !== null;
}

function ask() {
  waited += 1;
  if (paused || asking || ended || document.hidden || inUse() || waited < slower) return;
  waited = 0;
  asking = true;
  window.htmx.trigger(part, "poll");
}

part.addEventListener("htmx:beforeSwap", (event) => {
  // An answer from another address is the way to sign in.
  ended = new URL(event.detail.xhr.responseURL).pathname !== location.pathname;
  if (ended || inUse()) event.detail.shouldSwap = false;
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
  toggle.textContent = paused ? "Go on" : "Pause";
  toggle.setAttribute("aria-pressed", String(paused));
  setState(paused ? "off" : "on", paused ? "paused" : "live");
});

setState("on", "live");
setInterval(ask, PERIOD_MS);
