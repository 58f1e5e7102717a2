// Talks to a gateway with the official Node client and prints what it saw as one JSON object.
// Arguments: base URL, key, model.
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
const messages = [{ role: "user", content: "abcd" }];

async function failure(ask) {
  try {
    await ask();
    return null;
  } catch (error) {
    const { status, code, param, type, requestID } = error;
    return { name: error.constructor.name, status, code, param, type, requestID };
  }
}

const whole = await client.chat.completions.create({ model, messages, max_tokens: 6 });
const stream = await client.chat.completions.create({
  model, messages, max_tokens: 6, stream: true, stream_options: { include_usage: true },
});
let streamed = "";
let usage = null;
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
const completion = await client.completions.create({ model, prompt: "abcd", max_tokens: 6 });
const models = [];
for await (const each of client.models.list()) models.push(each.id);

console.log(JSON.stringify({
  whole: whole.choices[0].message.content,
  requestID: whole._request_id,
  streamed,
  usage,
  completion: completion.choices[0].text,
  models,
  badField: await failure(() => client.chat.completions.create({ model, messages, n: 99 })),
  badKey: await failure(() =>
    new OpenAI({ baseURL, apiKey: "sk_wrong" }).models.list()),
  badModel: await failure(() => client.chat.completions.create({ model: "none", messages })),
}));
