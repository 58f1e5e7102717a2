// Reads a streamed chat completion: yields {requestId}, {thought}, {text}, {call}, a piece of a tool
// call, and {usage}; throws the server's words.

const END_MARK = "[DONE]";

async function refusal(answer) {
  let detail = null;
  try { detail = (await answer.json()).error; } catch { /* not JSON: the status says it */ }
  return new Error(detail?.message ?? `The gateway answered ${answer.status}.`);
}

function* frames(lines) {
  for (const line of lines) {
    if (!line.startsWith("data:")) continue;
    const data = line.slice(5).trim();
    if (data === END_MARK) { yield { ended: true }; continue; }
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    const delta = event.choices?.[0]?.delta;
    if (delta?.reasoning_content) yield { thought: delta.reasoning_content };
    if (delta?.content) yield { text: delta.content };
    for (const call of delta?.tool_calls ?? []) yield { call };
    if (event.usage) yield { usage: event.usage };
  }
}

export async function* chatStream(url, bearer, body, signal) {
  const answer = await fetch(url, {
    method: "POST",
    signal,
    credentials: "omit",
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const requestId = answer.headers.get("x-request-id");
  if (requestId) yield { requestId };
  if (!answer.ok) throw await refusal(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let ended = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const event of frames(lines)) {
      if (event.ended) ended = true;
      else yield event;
    }
  }
  if (!ended) throw new Error("The stream broke off before its end; what arrived is shown and billed.");
}
