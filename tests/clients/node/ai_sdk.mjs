// Vercel's AI SDK: text, streams, tools, objects and embeddings, by three providers.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { embedMany, generateObject, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
// docs
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText } from "ai";
// end
import { act, EMBEDDER, KEY, MODEL, must, report, SLUICE } from "./session.mjs";

const schema = z.object({ city: z.enum(["Rome", "Oslo"]), floor: z.enum(["one", "two"]) });
const find = tool({
  description: "Find a room.",
  inputSchema: z.object({ city: z.enum(["Rome", "Oslo"]) }),
  execute: async ({ city }) => `Room 7 in ${city}`,
});
const prompt = "Find a room.";

act("compatible", async () => {
  // docs
  const sluice = createOpenAICompatible({
    name: "sluice",
    baseURL: `${SLUICE}/v1`,
    apiKey: KEY,
    includeUsage: true, // Else streams do not say how many tokens they had.
    supportsStructuredOutputs: true, // Else objects are asked for without their schema.
  });
  const answer = await generateText({
    model: sluice(MODEL),
    prompt: "What is a hold?",
    maxOutputTokens: 32,
  });
  console.log(answer.text);
  // end
  must(answer.usage.outputTokens > 0, "usage");
});

const compatible = createOpenAICompatible({
  name: "sluice", baseURL: `${SLUICE}/v1`, apiKey: KEY, includeUsage: true,
  supportsStructuredOutputs: true,
});
// docs
const openai = createOpenAI({ baseURL: `${SLUICE}/v1`, apiKey: KEY });
const anthropic = createAnthropic({ baseURL: `${SLUICE}/v1`, apiKey: KEY });
// end
const providers = {
  compatible: compatible(MODEL),
  openai_chat: openai.chat(MODEL),
  openai_responses: openai(MODEL),
  anthropic: anthropic(MODEL),
};

for (const [name, model] of Object.entries(providers)) {
  act(`${name}_text`, async () => {
    const answer = await generateText({ model, prompt, maxOutputTokens: 16, maxRetries: 0 });
    must(answer.usage.outputTokens > 0, "usage");
  });
  act(`${name}_streamed`, async () => {
    let failed = null;
    const stream = streamText({
      model, prompt, maxOutputTokens: 16, maxRetries: 0, onError: ({ error }) => (failed = error),
    });
    await stream.consumeStream();
    if (failed) throw failed;
    must((await stream.usage).outputTokens > 0, "usage");
  });
  act(`${name}_tools`, async () => {
    const answer = await generateText({
      model, prompt, tools: { find }, maxOutputTokens: 400, maxRetries: 0,
      stopWhen: stepCountIs(2),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : "required" }),
    });
    must(answer.steps[0].toolResults[0].output.startsWith("Room 7"), "the tool's result");
    must(answer.steps.length === 2, "a second step");
  });
  act(`${name}_object`, async () => {
    const { object } = await generateObject({
      model, prompt, schema, maxOutputTokens: 200, maxRetries: 0,
    });
    must(object.city, "an object");
  });
}

act("embeddings", async () => {
  const model = compatible.textEmbeddingModel(EMBEDDER);
  must((await embedMany({ model, values: ["one", "two"] })).embeddings.length === 2, "vectors");
});

await report();
