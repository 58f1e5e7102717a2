// Live figures on the Overview: only while the page is visible and not paused.
import { drawFigures, drawn, redrawAll } from "./plots.js";

const panel = document.getElementById("live");
const words = panel.querySelector("[data-live-words]");
const status = panel.querySelector("[data-live-status]");
const toggle = panel.querySelector("[data-live-toggle]");
const MESSAGE_GAP_MS = 30_000;
const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 30_000;
const FINAL_CODES = new Set([4400, 4401, 4429]);
let socket = null;
let paused = false;
let retryMs = RETRY_MS_MIN;
let retryTimer = null;
let messageAt = -MESSAGE_GAP_MS;

// Screen readers hear changes of state only, and never more often than every thirty seconds.
function announce(text) {
  const now = performance.now();
  if (now - messageAt < MESSAGE_GAP_MS) return;
  messageAt = now;
  status.textContent = text;
}

function setState(state, text) {
  if (panel.dataset.liveState === state && words.textContent === text) return;
  panel.dataset.liveState = state;
  words.textContent = text;
  announce(`Live figures: ${text}`);
}

// A percentile leads to a request that took about so long.
function pointAt(link, us) {
  if (!link) return;
  const url = new URL(link.href);
  url.searchParams.set("value", us);
  link.href = url;
}

function showCells(cells) {
  for (const node of document.querySelectorAll("[data-cell]")) {
    const found = cells[node.dataset.cell];
    if (!found) continue;
    const [text, title, tone, us] = found;
    if (node.textContent !== text) node.textContent = text;
    if (title) node.title = title;
    node.className = tone;
    if (us !== null) pointAt(node.closest(".exemplar"), us);
  }
}

function showBars(bars) {
  for (const bar of document.querySelectorAll("[data-bar]")) {
    const [width, over] = bars[bar.dataset.bar];
    bar.setAttribute("width", width);
    bar.setAttribute("class", over ? "over" : "fill");
  }
}

function show(figures) {
  // The charts are hidden as long as it is there, and take their size from the page.
  const hint = figures.empty ? null : document.getElementById("first-request");
  hint?.remove();
  showCells(figures.cells);
  showBars(figures.bars);
  drawFigures(figures.figures);
  if (hint) redrawAll();
  document.querySelector("[data-live-as-of]").textContent = figures.as_of;
}

function close() {
  clearTimeout(retryTimer);
  const old = socket;
  socket = null;
  old?.close();
}

function open() {
  if (socket || paused || document.hidden) return;
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const made = new WebSocket(`${scheme}//${location.host}/live?${panel.dataset.range}`);
  socket = made;
  made.addEventListener("message", (event) => {
    if (socket !== made) return;
    retryMs = RETRY_MS_MIN;
    setState("on", "live");
    show(JSON.parse(event.data));
  });
  made.addEventListener("close", (event) => {
    if (socket !== made) return;
    socket = null;
    if (FINAL_CODES.has(event.code)) {
      setState("lost", event.code === 4401 ? "signed out: reload" : "too many watchers: reload later");
      return;
    }
    setState("lost", "reconnecting");
    retryTimer = setTimeout(open, retryMs * (0.5 + Math.random()));
    retryMs = Math.min(retryMs * 2, RETRY_MS_MAX);
  });
}

toggle.addEventListener("click", () => {
  paused = !paused;
  toggle.textContent = paused ? "Resume" : "Pause";
  toggle.setAttribute("aria-pressed", String(paused));
  if (paused) { close(); setState("off", "paused"); } else open();
});

document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
addEventListener("pagehide", close);
drawn.then(open);
