// The playground: a conversation with one model or two, measured as a client sees it.
import { LANGUAGES } from "./code.js";
import { freshToken } from "./token.js";
import { Side } from "./turns.js";

const form = document.getElementById("ask");
const byId = (id) => document.getElementById(id);
const PICTURES_MAX = 4;
const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"];
let running = null;
let pictures = [];
// What a kept request had besides that has no field here is sent as it was.
let besides = {};

function fail(message) {
  byId("ask-error").textContent = message;
  byId("ask-error").hidden = !message;
}

/** The JSON in a field; undefined where it is empty. Throws an error that names the field. */
function jsonIn(name, label) {
  const text = form[name].value.trim();
  if (!text) return undefined;
  try { return JSON.parse(text); } catch (error) { throw new Error(`${label}: ${error.message}`); }
}

function parameters() {
  const found = { ...besides };
  for (const name of NUMBERS) if (form[name].value !== "") found[name] = Number(form[name].value);
  const stop = form.stop.value.split("\n").filter(Boolean);
  if (stop.length) found.stop = stop;
  const tools = jsonIn("tools", "Tools");
  if (tools) found.tools = tools;
  if (form.format.value === "json_object") found.response_format = { type: "json_object" };
  if (form.format.value === "json_schema") {
    const schema = jsonIn("schema", "JSON schema") ?? {};
    found.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  }
  return found;
}

function bodyOf(model, messages) {
  const system = form.system.value.trim() ? [{ role: "system", content: form.system.value }] : [];
  const whole = { model, messages: [...system, ...messages], ...parameters() };
  return { ...whole, stream: true, stream_options: { include_usage: true } };
}

function written() {
  const text = form.user.value;
  if (!pictures.length) return text.trim() ? { role: "user", content: text } : null;
  const parts = pictures.map((url) => ({ type: "image_url", image_url: { url } }));
  return { role: "user", content: [...(text.trim() ? [{ type: "text", text }] : []), ...parts] };
}

async function readPictures() {
  const files = [...byId("ask-pictures").files].slice(0, PICTURES_MAX);
  pictures = await Promise.all(files.map((file) => new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  })));
}

const sides = form ? [...document.querySelectorAll("[data-side]")].map((each) => new Side(each, form.dataset)) : [];
const models = () => [form.model.value, form.other.value].filter(Boolean);
const talking = () => sides.slice(0, models().length);

function setState(words, busy) {
  byId("ask-state").textContent = words;
  byId("ask-send").disabled = busy;
  byId("ask-stop").disabled = !busy;
}

async function send() {
  fail("");
  const active = talking();
  const own = new AbortController();
  running = own;
  let bearer;
  try {
    parameters();
    bearer = await freshToken(form);
    if (running !== own) return;
    const message = written();
    if (active.some((side) => side.waits)) active.forEach((side) => { if (side.waits) side.answerCalls(); });
    else if (message) active.forEach((side) => side.say(message));
    else if (!active.every((side) => side.owed)) throw new Error("Write a message first.");
  } catch (error) {
    running = null;
    fail(error.message);
    return;
  }
  setState("Waiting for the first token", true);
  let whole = [];
  try {
    const started = () => { byId("ask-state").textContent = "Streaming"; };
    whole = await Promise.all(active.map((side, at) =>
      side.ask(bearer, bodyOf(models()[at], side.messages), own.signal, started)));
  } catch (error) {
    fail(error.message);
  }
  if (running !== own) return;
  const stopped = own.signal.aborted;
  running = null;
  setState(stopped ? "Stopped; only what arrived is billed" : whole.every(Boolean) && whole.length ? "Done" : "Failed", false);
  if (whole.some(Boolean)) { form.user.value = ""; byId("ask-pictures").value = ""; pictures = []; }
  writeCode();
}

function startAnew() {
  running?.abort();
  running = null;
  sides.forEach((side) => side.clear());
  besides = {};
  setState("Nothing sent yet", false);
  fail("");
  writeCode();
}

/** A second model begins where the first stands, so that both are asked the same. */
function chooseOther() {
  const [one, other] = sides;
  other.clear();
  byId("side-1").hidden = !form.other.value;
  if (form.other.value) one.messages.forEach((message) => other.say(message));
  sides.forEach((side, at) => {
    side.title.textContent = models()[at] ?? "";
    side.title.hidden = !form.other.value;
  });
}

/** The last turn of a user can be changed; all before it is sent as it was. */
function writeKept({ messages = [], model, ...rest }) {
  const turns = [...messages];
  form.system.value = turns[0]?.role === "system" && typeof turns[0].content === "string" ? turns.shift().content : "";
  form.user.value = turns.at(-1)?.role === "user" && typeof turns.at(-1).content === "string" ? turns.pop().content : "";
  turns.forEach((message) => sides[0].say(message));
  if ([...form.model.options].some((each) => each.value === model)) form.model.value = model;
  for (const name of NUMBERS) {
    if (typeof rest[name] === "number") form[name].value = rest[name];
    delete rest[name];
  }
  if (rest.tools) form.tools.value = JSON.stringify(rest.tools, null, 2);
  for (const name of ["tools", "stream", "stream_options", "n"]) delete rest[name];
  besides = rest;
}

function writeCode() {
  let body;
  try {
    const message = written();
    body = bodyOf(form.model.value, [...sides[0].messages, ...(message ? [message] : [])]);
  } catch { return; }
  for (const [name, write] of Object.entries(LANGUAGES)) byId(`text-${name}`).textContent = write(form.dataset.gateway, body);
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
  form.addEventListener("submit", (event) => { event.preventDefault(); if (!running) send(); });
  document.addEventListener("input", async (event) => {
    if (event.target.form !== form) return;
    if (event.target.id === "ask-pictures") await readPictures();
    if (event.target === form.other || event.target === form.model) chooseOther();
    byId("ask-schema").closest(".field").hidden = form.format.value !== "json_schema";
    writeCode();
  });
  byId("ask-stop").addEventListener("click", () => running?.abort());
  byId("ask-anew").addEventListener("click", startAnew);
  byId("ask-user").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  if (form.dataset.kept) writeKept(JSON.parse(form.dataset.kept));
  const tabs = document.querySelector("[role='tablist']");
  tabs.addEventListener("click", (event) => { if (event.target.matches("[role='tab']")) chooseTab(event.target); });
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...tabs.children];
    chooseTab(all[(all.indexOf(event.target) + step + all.length) % all.length]);
  });
  writeCode();
}
