// Has a function called with the official Node client, whole and streamed; prints what it saw.
// Arguments: base URL, key, model.
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const parameters = {
  type: "object",
  properties: { city: { enum: ["Rome", "Oslo"] } },
  required: ["city"],
  additionalProperties: false,
};
const wanted = {
  model,
  messages: [{ role: "user", content: "Find a room." }],
  tools: [{ type: "function", function: { name: "find", parameters } }],
  tool_choice: { type: "function", function: { name: "find" } },
  max_tokens: 100,
};

const whole = await client.chat.completions.create(wanted);
const stream = client.chat.completions.stream(wanted);
const streamed = await stream.finalChatCompletion();
const formatted = await client.chat.completions.create({
  model, messages: wanted.messages, max_tokens: 100,
  response_format: { type: "json_schema", json_schema: { name: "room", schema: parameters } },
});
console.log(JSON.stringify({
  whole: whole.choices[0],
  streamed: streamed.choices[0],
  formatted: formatted.choices[0],
}));
