// A trial of a template: two versions of each case are asked one after the other, then compared in words.
import { freshToken } from "./token.js";
import { Side, milliseconds } from "./turns.js";

const form = document.getElementById("trial");
const byId = (id) => document.getElementById(id);
const SHOWN_WORDS_MAX = 12;
let running = null;

function quoted(words) {
  const some = words.slice(0, SHOWN_WORDS_MAX).join(" ");
  return words.length ? `“${some}${words.length > SHOWN_WORDS_MAX ? " …" : ""}”` : "nothing";
}

/** Where two texts part and meet again. */
function differenceOf(first, second) {
  const [one, other] = [first, second].map((text) => text.split(/\s+/).filter(Boolean));
  const most = Math.min(one.length, other.length);
  let [start, end] = [0, 0];
  while (start < most && one[start] === other[start]) start += 1;
  if (start === one.length && start === other.length) return "Both answers are the same.";
  while (end < most - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  const [was, is] = [one, other].map((words) => words.slice(start, words.length - end));
  return `The answers agree in ${start + end} words; the first has ${quoted(was)} where the second has ${quoted(is)}.`;
}

function compared(one, other, less, more, told) {
  if (one === null || other === null) return "";
  return one === other ? "" : ` The second ${other < one ? less : more} ${told(Math.abs(other - one))}.`;
}

function wordsOf(one, other) {
  const out = (last) => last.usage?.completion_tokens ?? null;
  return [
    differenceOf(one.text, other.text),
    compared(one.firstMs, other.firstMs, "began sooner, by", "began later, by", milliseconds),
    compared(out(one), out(other), "is shorter, by", "is longer, by", (tokens) => `${tokens} tokens`),
    compared(one.usd, other.usd, "cost less, by", "cost more, by", (usd) => `$${Number(usd.toPrecision(3))}`),
  ].join("");
}

async function askCase(element, bearer, signal) {
  const sides = [...element.querySelectorAll("[data-side]")];
  const answers = [];
  for (const each of sides) {
    const side = new Side(each, form.dataset);
    side.clear();
    if (await side.ask(bearer, JSON.parse(each.dataset.body), signal, () => {})) answers.push(side.last);
  }
  const words = element.querySelector(".differs");
  words.hidden = answers.length < 2;
  if (answers.length === 2) words.textContent = wordsOf(...answers);
  return answers.length === sides.length;
}

function setState(words, busy) {
  byId("trial-state").textContent = words;
  byId("trial-run").disabled = busy;
  byId("trial-stop").disabled = !busy;
}

async function run() {
  running = new AbortController();
  byId("trial-error").hidden = true;
  const cases = [...document.querySelectorAll("[data-case]")];
  let whole = 0;
  try {
    for (const [place, each] of cases.entries()) {
      setState(`Asking ${place + 1} of ${cases.length}`, true);
      if (running.signal.aborted) break;
      if (await askCase(each, await freshToken(form), running.signal)) whole += 1;
    }
  } catch (error) {
    byId("trial-error").textContent = error.message;
    byId("trial-error").hidden = false;
  }
  const stopped = running.signal.aborted ? "Stopped; only what arrived is billed" : "Some failed";
  setState(whole === cases.length ? "Done" : stopped, false);
}

byId("trial-run")?.addEventListener("click", run);
byId("trial-stop")?.addEventListener("click", () => running?.abort());
