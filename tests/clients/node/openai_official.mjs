// The official Node client: chat, tools, structured output, embeddings and Responses.
// docs
import OpenAI from "openai";
// end
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { act, EMBEDDER, KEY, MODEL, must, report, SLUICE } from "./session.mjs";

const messages = [{ role: "user", content: "Find a room in Rome." }];
const Room = z.object({ city: z.enum(["Rome", "Oslo"]), floor: z.enum(["one", "two"]) });
const parameters = {
  type: "object",
  properties: { city: { enum: ["Rome", "Oslo"] } },
  required: ["city"],
  additionalProperties: false,
};

act("chat", async () => {
  // docs
  const client = new OpenAI({ baseURL: `${SLUICE}/v1`, apiKey: KEY });
  const answer = await client.chat.completions.create({
    model: MODEL,
    messages: [{ role: "user", content: "What is a hold?" }],
    max_completion_tokens: 32,
  });
  console.log(answer.choices[0].message.content);
  // end
  must(answer.usage.completion_tokens > 0, "usage");
});

const client = new OpenAI({ baseURL: `${SLUICE}/v1`, apiKey: KEY });

act("streamed", async () => {
  const stream = await client.chat.completions.create({
    model: MODEL, messages, max_tokens: 16, stream: true, stream_options: { include_usage: true },
  });
  let usage = null;
  for await (const chunk of stream) usage = chunk.usage ?? usage;
  must(usage.completion_tokens > 0, "usage in the stream");
});

act("history_as_it_came", async () => {
  const first = await client.chat.completions.create({ model: MODEL, messages, max_tokens: 8 });
  const history = [...messages, first.choices[0].message, { role: "user", content: "And Oslo?" }];
  await client.chat.completions.create({ model: MODEL, messages: history, max_tokens: 8 });
});

act("tools", async () => {
  const tools = [{ type: "function", function: { name: "find", parameters } }];
  const tool_choice = { type: "function", function: { name: "find" } };
  const first = await client.chat.completions.create({
    model: MODEL, messages, tools, tool_choice, max_tokens: 100,
  });
  const [call] = first.choices[0].message.tool_calls;
  must(call.function.name === "find", "the call");
  const result = { role: "tool", tool_call_id: call.id, content: "Room 7" };
  const second = await client.chat.completions.create({
    model: MODEL, messages: [...messages, first.choices[0].message, result], tools,
    tool_choice: "none", max_tokens: 16,
  });
  must(!second.choices[0].message.tool_calls, "no further call");
});

act("parsed", async () => {
  const answer = await client.chat.completions.parse({
    model: MODEL, messages, max_tokens: 100, response_format: zodResponseFormat(Room, "room"),
  });
  must(answer.choices[0].message.parsed.city, "parsed");
});

act("embeddings", async () => {
  const made = await client.embeddings.create({ model: EMBEDDER, input: ["one", "two"] });
  must(made.data.length === 2 && made.data[0].embedding.length > 100, "vectors");
});

act("responses", async () => {
  const answer = await client.responses.create({
    model: MODEL, input: "What is a hold?", max_output_tokens: 32,
  });
  must(answer.usage.output_tokens > 0 && typeof answer.output_text === "string", "an answer");
});

act("responses_streamed", async () => {
  const kinds = [];
  const stream = client.responses.stream({ model: MODEL, input: messages, max_output_tokens: 16 });
  for await (const event of stream) kinds.push(event.type);
  must(kinds[0] === "response.created", kinds[0]);
  must((await stream.finalResponse()).usage.output_tokens > 0, "usage");
});

act("responses_tools", async () => {
  const tools = [{ type: "function", name: "find", parameters, strict: true }];
  const first = await client.responses.create({
    model: MODEL, input: messages, tools, tool_choice: { type: "function", name: "find" },
    max_output_tokens: 100,
  });
  const call = first.output.find((item) => item.type === "function_call");
  const result = { type: "function_call_output", call_id: call.call_id, output: "Room 7" };
  await client.responses.create({
    model: MODEL, input: [...messages, ...first.output, result], tools, tool_choice: "none",
    max_output_tokens: 16,
  });
});

act("responses_parsed", async () => {
  const answer = await client.responses.parse({
    model: MODEL, input: messages, max_output_tokens: 100,
    text: { format: zodTextFormat(Room, "room") },
  });
  must(answer.output_parsed.city, "parsed");
});

await report();
