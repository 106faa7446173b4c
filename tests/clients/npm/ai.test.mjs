// Vercel's `ai` with `@ai-sdk/openai-compatible`, unmodified.
import assert from "node:assert/strict";
import test from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, jsonSchema, Output, streamText, tool } from "ai";
import { z } from "zod";
import { answer, model, next, prompt, question, url, weather } from "./asked.mjs";

const provider = createOpenAICompatible({
  name: "ropeteam", baseURL: url + "/v1", includeUsage: true, supportsStructuredOutputs: true,
});
const chat = { model: provider(model), temperature: 0, maxRetries: 0 };
const tools = { get_weather: tool({ description: "The weather.", inputSchema: jsonSchema(weather) }) };

test("a text is generated, whole and streamed", async () => {
  const whole = await generateText({ ...chat, prompt: question, maxOutputTokens: 32 });
  assert.equal(whole.text, answer);
  assert.equal(whole.finishReason, "stop");
  const stream = streamText({ ...chat, prompt: question, maxOutputTokens: 32 });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, answer);
  assert.equal(await stream.finishReason, "stop");
  assert.ok((await stream.usage).outputTokens > 0);
});

test("a plain completion counts on", async () => {
  const model_ = provider.completionModel(model);
  const whole = await generateText({ model: model_, prompt, maxOutputTokens: 4, temperature: 0, maxRetries: 0 });
  assert.equal(whole.finishReason, "length");
  assert.ok(whole.text.length > 0);
});

test("calls are parsed, whole and streamed", async () => {
  const asked = { ...chat, tools, toolChoice: "required", prompt: "What is the weather in Oslo?", maxOutputTokens: 60 };
  const whole = await generateText(asked);
  const stream = streamText(asked);
  await stream.consumeStream();
  for (const [calls, reason] of [
    [whole.toolCalls, whole.finishReason],
    [await stream.toolCalls, await stream.finishReason],
  ]) {
    assert.equal(reason, "tool-calls");
    assert.equal(calls[0].toolName, "get_weather");
    assert.match(calls[0].input.unit, /^[CF]$/);
  }
});

test("an object has its form", async () => {
  const schema = z.object({ drink: z.enum(["tea", "coffee"]), hot: z.boolean() });
  const made = await generateText({
    ...chat, output: Output.object({ schema }), prompt: "Tea or coffee?", maxOutputTokens: 40,
  });
  schema.parse(made.output);
});

test("texts are embedded", async () => {
  const made = await embedMany({ model: provider.textEmbeddingModel(model), values: ["a", "b"], maxRetries: 0 });
  assert.equal(made.embeddings.length, 2);
});

test("errors carry status and message", async () => {
  await assert.rejects(
    generateText({ ...chat, temperature: -1, prompt: "x" }),
    (error) => error.statusCode === 400 && /temperature/.test(error.message));
});
