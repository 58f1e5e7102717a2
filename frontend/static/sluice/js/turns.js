// One column of the playground: the turns of a conversation with one model, and what each took.
import { chatStream } from "./stream.js";

const COST_TRIES_MAX = 10;
const COST_WAIT_MS = 300;
const ZERO_ID = "0".repeat(32);

function three(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
}

export function milliseconds(value) {
  return value < 999.5 ? `${three(value)} ms` : `${three(value / 1000)} s`;
}

function textOf(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? `[${part.type.replace("_url", "")}]`).join("\n");
}

/** Adds a piece of a streamed tool call to the calls so far. */
function addCall(calls, piece) {
  const call = calls[piece.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
  if (piece.id) call.id = piece.id;
  call.function.name += piece.function?.name ?? "";
  call.function.arguments += piece.function?.arguments ?? "";
}

export class Side {
  /** `urls` are those of the form: `gateway`, `costUrl`, `requestUrl`. */
  constructor(element, urls) {
    this.list = element.querySelector(".turns");
    this.title = element.querySelector("h3");
    this.urls = urls;
    this.messages = [];
    // What the last turn took: its text, usage, milliseconds to the first token, and dollars.
    this.last = null;
  }

  clear() {
    this.messages = [];
    this.list.replaceChildren();
  }

  /** Whether it is the model's turn: results of tools were sent, and no answer came. */
  get owed() { return this.messages.at(-1)?.role === "tool"; }

  /** Whether the model waits for what its tools answered. */
  get waits() { return (this.messages.at(-1)?.tool_calls ?? []).length > 0; }

  say(message) {
    this.messages.push(message);
    const turn = this.#turn(message.role);
    turn.querySelector(".said").textContent = textOf(message.content);
    for (const call of message.tool_calls ?? []) this.#showCall(turn, call);
    return turn;
  }

  /** What was written as results of the last turn's calls, as messages of the role `tool`. */
  answerCalls() {
    const written = [...this.list.lastElementChild.querySelectorAll("textarea")];
    for (const each of written) {
      each.disabled = true;
      this.messages.push({ role: "tool", tool_call_id: each.dataset.call, content: each.value });
    }
  }

  /** Asks for the next turn; true where it came whole. `started` is called at its first token. */
  async ask(bearer, body, signal, started) {
    // Of this conversation, also where another one is begun meanwhile.
    const { messages } = this;
    const turn = this.#turn("assistant");
    const part = (name) => turn.querySelector(`.${name}`);
    const calls = [];
    const began = performance.now();
    let [id, firstAt, lastAt, usage, text] = [null, null, null, null, ""];
    let whole = false;
    try {
      const stream = chatStream(`${this.urls.gateway}/v1/chat/completions`, bearer, body, signal);
      for await (const event of stream) {
        if (event.requestId) { id = event.requestId; this.#link(part("request"), id); }
        if (event.text || event.thought || event.call) {
          lastAt = performance.now();
          if (firstAt === null) { firstAt = lastAt; part("ttft").textContent = milliseconds(firstAt - began); started(); }
        }
        if (event.thought) { part("thoughts").hidden = false; part("thoughts").append(event.thought); }
        if (event.text) { text += event.text; part("said").append(event.text); }
        if (event.call) addCall(calls, event.call);
        if (event.usage) usage = event.usage;
      }
      whole = true;
      part("total").textContent = milliseconds(performance.now() - began);
    } catch (error) {
      if (error.name !== "AbortError") { part("refused").textContent = error.message; part("refused").hidden = false; }
    }
    if (usage) this.#usage(turn, usage, (lastAt - firstAt) / 1000);
    if (whole || text) messages.push({ role: "assistant", content: text || null, ...(whole && calls.length ? { tool_calls: calls } : {}) });
    else if (messages.at(-1)?.role === "user") messages.pop(); // Nothing came: it can be asked again.
    if (whole) for (const call of calls) this.#showCall(turn, call, true);
    this.last = { text, usage, firstMs: firstAt === null ? null : firstAt - began, usd: null };
    if (id) this.last.usd = await this.#cost(part("cost"), id);
    return whole;
  }

  #turn(role) {
    const turn = document.getElementById("turn").content.firstElementChild.cloneNode(true);
    turn.querySelector(".role").textContent = role;
    turn.querySelector(".verdict").hidden = role !== "assistant";
    this.list.append(turn);
    return turn;
  }

  #showCall(turn, call, asks = false) {
    const shown = document.getElementById("call").content.firstElementChild.cloneNode(true);
    shown.querySelector("code").textContent = `${call.function.name}(${call.function.arguments})`;
    const field = shown.querySelector("textarea");
    field.dataset.call = call.id;
    if (!asks) field.closest("label").remove();
    turn.querySelector(".calls").append(shown);
  }

  #usage(turn, usage, seconds) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    const [all, hit, out] = [usage.prompt_tokens, cached, usage.completion_tokens].map((each) => each.toLocaleString("en"));
    turn.querySelector(".tokens").textContent = `${all} (${hit}) / ${out}`;
    if (usage.completion_tokens > 1 && seconds > 0) turn.querySelector(".rate").textContent = three((usage.completion_tokens - 1) / seconds);
  }

  #link(place, id) {
    const link = document.createElement("a");
    link.href = this.urls.requestUrl.replace(ZERO_ID, id);
    link.textContent = `${id.slice(0, 8)}…${id.slice(-4)}`;
    link.title = id;
    place.replaceChildren(link);
  }

  async #cost(place, id) {
    for (let tries = 0; tries < COST_TRIES_MAX; tries += 1) {
      const answer = await fetch(this.urls.costUrl.replace(ZERO_ID, id));
      if (!answer.ok) break;
      const found = await answer.json();
      if (found.cost !== null) {
        place.textContent = found.cost;
        place.title = `$${found.exact} exactly`;
        return Number(found.exact);
      }
      await new Promise((resolve) => { setTimeout(resolve, COST_WAIT_MS); });
    }
    place.textContent = "not settled yet";
    return null;
  }
}
