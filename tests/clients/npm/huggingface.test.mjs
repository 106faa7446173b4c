// `@huggingface/inference`, unmodified, against an endpoint of one's own.
import assert from "node:assert/strict";
import test from "node:test";
import { InferenceClient } from "@huggingface/inference";
import { answer, next, prompt, question, url } from "./asked.mjs";

const client = new InferenceClient("none").endpoint(url);
const messages = [{ role: "user", content: question }];

// Of a text it asks /v1/completions, and names the endpoint's address as the model.
test("a text is generated, whole and streamed", async () => {
  const asked = { inputs: prompt, parameters: { max_new_tokens: 12, temperature: 0 } };
  assert.equal((await client.textGeneration(asked)).generated_text, next);
  let text = "";
  for await (const chunk of client.textGenerationStream(asked)) text += chunk.choices[0].text;
  assert.equal(text, next);
});

test("a chat answers, whole and streamed", async () => {
  const asked = { messages, max_tokens: 32, temperature: 0 };
  assert.equal((await client.chatCompletion(asked)).choices[0].message.content, answer);
  let text = "";
  for await (const chunk of client.chatCompletionStream(asked)) text += chunk.choices[0]?.delta.content ?? "";
  assert.equal(text, answer);
});

test("errors are told", async () => {
  await assert.rejects(client.textGeneration({ inputs: "x", parameters: { temperature: -1 } }), (error) =>
    error.httpResponse.status === 400 && JSON.stringify(error.httpResponse.body).includes("temperature"));
});
