// Asks once with the official Node client, retries left on; prints the error it ends with.
// Arguments: base URL, key, model.
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
try {
  const stream = await client.chat.completions.create({
    model, messages: [{ role: "user", content: "abcd" }], max_tokens: 50, stream: true,
  });
  for await (const chunk of stream) void chunk;
  console.log(JSON.stringify({ name: null }));
} catch (error) {
  console.log(JSON.stringify({ name: error.constructor.name, code: error.code }));
}
