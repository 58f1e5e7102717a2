// The playground: one streamed request at a time, measured as a client sees it.
import { chatStream } from "./stream.js";

const form = document.getElementById("ask");
const byId = (id) => document.getElementById(id);
const TOKEN_SPARE_MS = 30_000;
const COST_TRIES_MAX = 10;
const COST_WAIT_MS = 300;
const ZERO_ID = "0".repeat(32);
let token = null;
let running = null;
const kept = form?.dataset.kept ? JSON.parse(form.dataset.kept) : { messages: [] };

function three(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
}

function milliseconds(value) {
  return value < 999.5 ? `${three(value)} ms` : `${three(value / 1000)} s`;
}

async function freshToken() {
  const project = form.project.value;
  if (token && token.project === project && token.until > Date.now()) return token.text;
  const answer = await fetch(form.dataset.tokenUrl, { method: "POST", body: new FormData(form) });
  if (!answer.ok) throw new Error("Your session has ended or your role changed. Reload the page.");
  const made = await answer.json();
  token = { text: made.token, project, until: Date.now() + made.lifetime_s * 1000 - TOKEN_SPARE_MS };
  return token.text;
}

function show(id, text) { byId(id).textContent = text; }

function reset() {
  for (const id of ["ask-ttft", "ask-total", "ask-tokens", "ask-rate", "ask-cost", "ask-request"]) show(id, "–");
  byId("ask-error").hidden = true;
  byId("thoughts").hidden = true;
  for (const id of ["thoughts", "answer"]) show(id, "");
  byId("answer").dataset.empty = "false";
}

function fail(message) {
  byId("ask-error").textContent = message;
  byId("ask-error").hidden = false;
}

function body() {
  const messages = [...kept.messages];
  if (form.user.value.trim()) messages.push({ role: "user", content: form.user.value });
  if (form.system.value.trim()) messages.unshift({ role: "system", content: form.system.value });
  return { ...kept, model: form.model.value, messages, n: 1, stream: true, stream_options: { include_usage: true } };
}

// The last turn of a user can be changed; all before it is sent as it was.
function writeKept() {
  form.system.value = "";
  form.user.value = "";
  const last = kept.messages.at(-1);
  if (last?.role === "user" && typeof last.content === "string") form.user.value = kept.messages.pop().content;
  if ([...form.model.options].some((each) => each.value === kept.model)) form.model.value = kept.model;
}

async function beside(bearer, signal) {
  const model = form.other.value;
  byId("ask-beside").hidden = !model;
  if (!model) return;
  show("beside", "");
  show("beside-title", model);
  const began = performance.now();
  const url = `${form.dataset.gateway}/v1/chat/completions`;
  try {
    for await (const event of chatStream(url, bearer, { ...body(), model }, signal)) byId("beside").append(event.text ?? "");
    show("beside-title", `${model} · ${milliseconds(performance.now() - began)}`);
  } catch (error) {
    show("beside-title", `${model}: ${error.message}`);
  }
}

async function showCost(id) {
  for (let tries = 0; tries < COST_TRIES_MAX; tries += 1) {
    const answer = await fetch(form.dataset.costUrl.replace(ZERO_ID, id));
    if (!answer.ok) break;
    const found = await answer.json();
    if (found.cost !== null) {
      show("ask-cost", found.cost);
      byId("ask-cost").title = `$${found.exact} exactly`;
      return;
    }
    await new Promise((resolve) => { setTimeout(resolve, COST_WAIT_MS); });
  }
  show("ask-cost", "not settled yet");
}

function linkRequest(id) {
  const link = document.createElement("a");
  link.href = form.dataset.requestUrl.replace(ZERO_ID, id);
  link.textContent = id;
  byId("ask-request").replaceChildren(link);
}

function showUsage(usage, firstAt, lastAt) {
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  show("ask-tokens", `${usage.prompt_tokens.toLocaleString("en")} (${cached.toLocaleString("en")}) / ${usage.completion_tokens.toLocaleString("en")}`);
  const seconds = (lastAt - firstAt) / 1000;
  if (usage.completion_tokens > 1 && seconds > 0) show("ask-rate", three((usage.completion_tokens - 1) / seconds));
}

async function send() {
  reset();
  running = new AbortController();
  byId("ask-send").disabled = true;
  byId("ask-stop").disabled = false;
  show("ask-state", "Waiting for the first token");
  let id = null;
  let firstAt = null;
  let lastAt = null;
  let ended = "Done";
  let other = null;
  try {
    const bearer = await freshToken();
    other = beside(bearer, running.signal);
    const began = performance.now();
    const stream = chatStream(`${form.dataset.gateway}/v1/chat/completions`, bearer, body(), running.signal);
    for await (const event of stream) {
      if (event.requestId) { id = event.requestId; linkRequest(id); }
      if (event.text || event.thought) {
        lastAt = performance.now();
        if (firstAt === null) { firstAt = lastAt; show("ask-ttft", milliseconds(firstAt - began)); show("ask-state", "Streaming"); }
        byId("thoughts").hidden &&= !event.thought;
        byId(event.thought ? "thoughts" : "answer").append(event.thought ?? event.text);
      }
      if (event.usage) showUsage(event.usage, firstAt, lastAt);
    }
    show("ask-total", milliseconds(performance.now() - began));
  } catch (error) {
    ended = error.name === "AbortError" ? "Stopped; only what arrived is billed" : "Failed";
    if (error.name !== "AbortError") fail(error.message);
  }
  await other;
  show("ask-state", ended);
  byId("ask-send").disabled = false;
  byId("ask-stop").disabled = true;
  running = null;
  if (id) await showCost(id);
}

function sendWritten() {
  if (form.user.value.trim() || kept.messages.length) { send(); return; }
  fail("Write a message first.");
  form.user.focus();
}

function writeSnippets() {
  const values = { "@BASE@": form.dataset.gateway };
  for (const [mark, field] of [["@MODEL@", "model"], ["@SYSTEM@", "system"], ["@USER@", "user"]]) {
    values[mark] = JSON.stringify(form[field].value);
  }
  for (const code of document.querySelectorAll("[data-template]")) {
    code.textContent = code.dataset.template.replace(/@[A-Z]+@/g, (mark) => values[mark] ?? mark);
  }
}

function chooseTab(tab) {
  for (const each of tab.parentElement.children) {
    const chosen = each === tab;
    each.setAttribute("aria-selected", String(chosen));
    each.tabIndex = chosen ? 0 : -1;
    byId(each.getAttribute("aria-controls")).hidden = !chosen;
  }
  tab.focus();
}

if (form) {
  form.addEventListener("submit", (event) => { event.preventDefault(); if (!running) sendWritten(); });
  form.addEventListener("input", writeSnippets);
  byId("ask-stop").addEventListener("click", () => running?.abort());
  byId("ask-user").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  if (form.dataset.kept) writeKept();
  const tabs = document.querySelector("[role='tablist']");
  tabs.addEventListener("click", (event) => { if (event.target.matches("[role='tab']")) chooseTab(event.target); });
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...tabs.children];
    chooseTab(all[(all.indexOf(event.target) + step + all.length) % all.length]);
  });
  writeSnippets();
}
