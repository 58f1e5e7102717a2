// Embeds with the official Node client, as floats and in its default base64; prints what it saw.
// Arguments: base URL, key, model.
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const input = ["abc", "hello world"];

async function failure(ask) {
  try {
    await ask();
    return null;
  } catch (error) {
    const { status, code, param } = error;
    return { name: error.constructor.name, status, code, param };
  }
}

const packed = await client.embeddings.create({ model, input });
const plain = await client.embeddings.create({ model, input, encoding_format: "float" });
const short = await client.embeddings.create({ model, input: "abc", dimensions: 16 });

console.log(JSON.stringify({
  packed: packed.data.map((each) => each.embedding),
  plain: plain.data.map((each) => each.embedding),
  short: short.data[0].embedding.length,
  usage: plain.usage,
  badField: await failure(() => client.embeddings.create({ model, input: ["a", ""] })),
}));
