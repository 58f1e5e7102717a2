// Checks a request before it is sent: what it would meet, and each finding's fix as code.
import { freshToken } from "./token.js";

const form = document.getElementById("check");
const byId = (id) => document.getElementById(id);

function show(found) {
  const refused = found.refusals.map((each) => `${each.status} ${each.message}`).join(" ");
  byId("check-verdict").textContent = found.would_run ? "It would run" : `It would be refused: ${refused}`;
  const { tokens, cost, context, streaming } = found;
  const count = (value) => value.toLocaleString("en");
  byId("check-tokens").textContent =
    `${tokens.counted ? "" : "at most "}${count(tokens.prompt)} (${count(tokens.cached_predicted)}) / ${count(tokens.output_at_most)}`;
  byId("check-window").textContent = count(context.left);
  byId("check-cost").textContent = `$${cost.at_most_usd}`;
  byId("check-streaming").textContent =
    streaming.asked ? (streaming.includes_usage ? "yes" : "yes, without usage") : "no";
  const fixes = JSON.parse(byId("fixes").textContent);
  const all = [...found.hygiene];
  if (!streaming.asked && !all.some((each) => each.kind === "not_streamed")) {
    all.push({ kind: "not_streamed", what: "Not streamed", fix: "The first token is seen when the last is." });
  }
  byId("check-findings").replaceChildren(...all.map((each) => {
    const item = byId("check-finding").content.firstElementChild.cloneNode(true);
    item.querySelector("strong").textContent = each.what;
    item.querySelector("p").textContent = each.fix;
    const code = fixes[each.kind]?.[form.client.value] ?? fixes[each.kind]?.curl;
    item.querySelector("div").hidden = !code;
    item.querySelector("pre").textContent = code?.trim() ?? "";
    return item;
  }));
  byId("check-none").hidden = all.length > 0;
  byId("check-told").hidden = false;
}

async function check() {
  const error = byId("check-error");
  error.hidden = true;
  try {
    const answer = await fetch(`${form.dataset.gateway}/v1/preflight`, {
      method: "POST",
      credentials: "omit",
      headers: { authorization: `Bearer ${await freshToken(form)}`, "content-type": "application/json" },
      body: form.body.value,
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error.message);
    show(found);
  } catch (failure) {
    byId("check-told").hidden = true;
    error.textContent = failure.message;
    error.hidden = false;
  }
}

form?.addEventListener("submit", (event) => { event.preventDefault(); check(); });
