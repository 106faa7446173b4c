// npm's `openai`, unmodified.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { answer, model, next, prompt, question, url, weather } from "./asked.mjs";

const client = new OpenAI({ baseURL: url + "/v1", apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: question }];

test("models are listed", async () => {
  const names = [];
  for await (const found of client.models.list()) names.push(found.id);
  assert.equal(names[0], model);
  assert.equal((await client.models.retrieve(model)).id, model);
});

test("a completion counts on, whole and streamed", async () => {
  const asked = { model, prompt, max_tokens: 12, temperature: 0 };
  const whole = await client.completions.create(asked);
  assert.equal(whole.choices[0].text, next);
  const stream = await client.completions.create({ ...asked, stream: true });
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0].text;
  assert.equal(text, next);
});

test("a chat answers, whole and streamed", async () => {
  const asked = { model, messages, max_tokens: 32, temperature: 0 };
  const whole = await client.chat.completions.create(asked);
  assert.equal(whole.choices[0].message.content, answer);
  const stream = client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, answer);
  assert.equal(final.choices[0].finish_reason, "stop");
  assert.equal((await stream.totalUsage()).total_tokens, whole.usage.total_tokens);
});

test("a parsed answer fits its schema", async () => {
  const form = z.object({ drink: z.enum(["tea", "coffee"]), hot: z.boolean() });
  const parsed = await client.chat.completions.parse({
    model, messages: [{ role: "user", content: "Tea or coffee?" }], max_tokens: 40, temperature: 0,
    response_format: zodResponseFormat(form, "order"),
  });
  form.parse(parsed.choices[0].message.parsed);
});

test("a streamed call is put together", async () => {
  const stream = client.chat.completions.stream({
    model, messages: [{ role: "user", content: "What is the weather in Oslo?" }], max_tokens: 60, temperature: 0,
    tools: [{ type: "function", function: { name: "get_weather", parameters: weather } }], tool_choice: "required",
  });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, "tool_calls");
  const [call] = final.choices[0].message.tool_calls;
  assert.equal(call.function.name, "get_weather");
  assert.match(JSON.parse(call.function.arguments).unit, /^[CF]$/);
});

test("embeddings come as numbers", async () => {
  const found = await client.embeddings.create({ model, input: ["a", "b"] });
  assert.equal(found.data.length, 2);
  const length = Math.hypot(...found.data[0].embedding);
  assert.ok(Math.abs(length - 1) < 1e-5, `length ${length}`);
});

test("errors have their classes and messages", async () => {
  const asked = { model, prompt: "x", max_tokens: 1 };
  await assert.rejects(client.completions.create({ ...asked, temperature: -1 }), (error) =>
    error instanceof OpenAI.BadRequestError && /temperature/.test(error.message));
  await assert.rejects(client.completions.create({ ...asked, model: "no-such-model" }), OpenAI.NotFoundError);
});
