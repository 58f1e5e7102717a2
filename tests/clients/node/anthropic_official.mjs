// Anthropic's Node client: messages, streams, tools, counts and models.
// docs
import Anthropic from "@anthropic-ai/sdk";
// end
import { act, KEY, MODEL, must, report, SLUICE } from "./session.mjs";

const messages = [{ role: "user", content: "Find a room in Rome." }];
const input_schema = {
  type: "object",
  properties: { city: { enum: ["Rome", "Oslo"] } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ name: "find", description: "Find a room.", input_schema }];

act("chat", async () => {
  // docs
  const client = new Anthropic({ baseURL: SLUICE, apiKey: KEY });
  const answer = await client.messages.create({
    model: MODEL,
    messages: [{ role: "user", content: "What is a hold?" }],
    max_tokens: 32,
  });
  console.log(answer.content);
  // end
  must(answer.usage.output_tokens > 0 && answer.type === "message", "an answer");
});

const client = new Anthropic({ baseURL: SLUICE, apiKey: KEY });

act("streamed", async () => {
  const stream = client.messages.stream({ model: MODEL, messages, max_tokens: 16 });
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  must(kinds[0] === "message_start" && kinds.at(-1) === "message_stop", kinds.join());
  must((await stream.finalMessage()).usage.output_tokens > 0, "usage");
});

act("tools", async () => {
  const first = await client.messages.create({
    model: MODEL, messages, tools, tool_choice: { type: "tool", name: "find" }, max_tokens: 100,
  });
  const call = first.content.find((part) => part.type === "tool_use");
  must(first.stop_reason === "tool_use" && call.name === "find", "the call");
  const result = { type: "tool_result", tool_use_id: call.id, content: "Room 7" };
  await client.messages.create({
    model: MODEL, tools, tool_choice: { type: "none" }, max_tokens: 16,
    messages: [
      ...messages,
      { role: "assistant", content: first.content },
      { role: "user", content: [result] },
    ],
  });
});

act("counted", async () => {
  const counts = await client.messages.countTokens({ model: MODEL, messages, tools });
  must(counts.input_tokens > 0, "a count");
});

act("models", async () => {
  const listed = [];
  for await (const each of client.models.list()) listed.push(each.id);
  must(listed.includes(MODEL), listed.join());
});

await report();
