"""The `openai` package, unmodified."""
import http.server
import json
import threading
import urllib.request
from typing import Literal

import openai
import pydantic
import pytest

PROMPT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,"
NEXT = " 11, 12, 13,"


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server + "/v1", api_key="none", max_retries=0)


def test_models_are_listed_and_found(client, model):
    assert [m.id for m in client.models.list()][0] == model
    assert client.models.retrieve(model).id == model
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        client.completions.create(model="no-such-model", prompt="x", max_tokens=1)


def test_a_completion_counts_on(client, model):
    answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=12, temperature=0)
    assert answer.choices[0].text == NEXT
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 12


def test_a_streamed_completion_is_the_same_text(client, model):
    stream = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=12, temperature=0, stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == NEXT
    assert chunks[-1].usage.completion_tokens == 12
    assert len({c.id for c in chunks}) == 1


def test_a_chat_answers_and_stops_by_itself(client, model):
    messages = [{"role": "user", "content": "What is the capital of Japan? Answer in one sentence."}]
    answer = client.chat.completions.create(model=model, messages=messages, max_tokens=32, temperature=0)
    assert answer.choices[0].message.content == "The capital of Japan is Tokyo."
    assert answer.choices[0].finish_reason == "stop"
    stream = client.chat.completions.create(
        model=model, messages=messages, max_tokens=32, temperature=0, stream=True
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "The capital of Japan is Tokyo."
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_choices_differ_and_repeat_with_their_seed(client, model):
    def draw():
        answer = client.completions.create(
            model=model, prompt="Once upon a time", n=3, max_tokens=12, temperature=1, seed=7
        )
        return [c.text for c in answer.choices]

    first = draw()
    assert len(set(first)) > 1
    assert draw() == first


def test_logprobs_are_parsed(client, model):
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Hi"}], max_tokens=3, temperature=0,
        logprobs=True, top_logprobs=2,
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == 3
    assert all(t.logprob <= 0 and len(t.top_logprobs) == 2 for t in content)
    assert content[0].top_logprobs[0].token == content[0].token


def test_a_bad_parameter_is_named(client, model):
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model=model, prompt="x", temperature=-1)
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "x"}],
            tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
            tool_choice={"type": "function", "function": {"name": "g"}},
        )


def test_a_too_long_prompt_is_refused_with_the_numbers(client, model):
    with pytest.raises(openai.BadRequestError, match="2048"):
        client.completions.create(model=model, prompt="word " * 5000, max_tokens=1)


def test_parsed_answers_fit_their_model(client, model):
    class Person(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        name: str = pydantic.Field(max_length=20)
        age: int = pydantic.Field(ge=0, le=120)
        likes: list[Literal["tea", "coffee"]] = pydantic.Field(max_length=2)

    for seed in range(3):
        answer = client.chat.completions.parse(
            model=model, messages=[{"role": "user", "content": "Invent a person."}], max_tokens=120,
            temperature=1, seed=seed, response_format=Person,
        )
        assert answer.choices[0].finish_reason == "stop"
        assert isinstance(answer.choices[0].message.parsed, Person)


def test_a_form_holds_in_a_stream(client, model):
    stream = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Tea or coffee?"}], stream=True,
        extra_body={"guided_choice": ["tea", "coffee"]},
    )
    assert "".join(c.choices[0].delta.content or "" for c in stream) in ("tea", "coffee")


WEATHER = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": {
    "type": "object", "properties": {"town": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
    "required": ["town", "unit"], "additionalProperties": False}}}


def test_a_forced_call_is_parsed(client, model):
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "What is the weather in Oslo?"}], tools=[WEATHER],
            tool_choice=choice, parallel_tool_calls=False, max_tokens=100, temperature=0,
        )
        assert answer.choices[0].finish_reason == "tool_calls"
        call, = answer.choices[0].message.tool_calls
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments)["unit"] in ("C", "F")


def test_a_call_and_its_result_go_back_into_the_chat(client, model):
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    answer = client.chat.completions.create(
        model=model, tools=[WEATHER], max_tokens=5, messages=[
            {"role": "user", "content": "What is the weather?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ],
    )
    assert answer.choices[0].finish_reason in ("stop", "length")


def test_embeddings_come_as_the_client_asks_for_them(client, model):
    texts = ["The cat sat on the mat.", "A cat is sitting on a mat.", "Stock prices fell sharply."]
    answer = client.embeddings.create(model=model, input=texts)
    assert [e.index for e in answer.data] == [0, 1, 2]
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
    first, alike, other = (e.embedding for e in answer.data)
    assert abs(sum(x * x for x in first) - 1) < 1e-5
    cosine = lambda a, b: sum(x * y for x, y in zip(a, b))
    assert cosine(first, alike) > cosine(first, other)
    # The client asks for base64 by itself; plain numbers are the same.
    plain = client.embeddings.create(model=model, input=texts[0], encoding_format="float").data[0].embedding
    assert max(abs(a - b) for a, b in zip(plain, first)) < 1e-6
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model=model, input="x", dimensions=3)


def test_vllm_s_fields_reach_the_server(client, model):
    answer = client.completions.create(
        model=model, prompt="The capital of France is", max_tokens=4, temperature=0,
        extra_body={"prompt_logprobs": 1, "return_token_ids": True, "bad_words": ["Paris"], "request_id": "by-name"},
    )
    choice = answer.choices[0]
    assert answer.id == "cmpl-by-name"
    assert "Paris" not in choice.text
    ids = choice.model_extra["prompt_token_ids"]
    places = choice.model_extra["prompt_logprobs"]
    assert len(places) == len(ids) and places[0] is None
    assert all(str(token) in place for token, place in zip(ids[1:], places[1:]))
    assert len(choice.model_extra["token_ids"]) == 4


class Flaky(http.server.BaseHTTPRequestHandler):
    """Refuses the first call as an overloaded server does, passes the others on."""
    refused = 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not Flaky.refused:
            Flaky.refused += 1
            self.send_response(429)
            self.send_header("retry-after", "0")
            self.end_headers()
            return
        request = urllib.request.Request(self.server.target + self.path, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            data = answer.read()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def test_the_client_tries_again_after_an_overload(server, model):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Flaky) as proxy:
        proxy.target = server
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{proxy.server_port}/v1", api_key="none", max_retries=2)
        answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=4, temperature=0)
        assert Flaky.refused == 1 and answer.choices[0].finish_reason == "length"
        proxy.shutdown()
