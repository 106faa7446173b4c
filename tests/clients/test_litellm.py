"""The `litellm` package, unmodified, by its three providers that speak to servers of one's own."""
import os

# Its table of prices comes with the package; the default is to fetch it.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of Japan? Answer in one sentence."}]
ANSWER = "The capital of Japan is Tokyo."
PROMPT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,"
NEXT = " 11, 12, 13,"


@pytest.fixture(scope="module", params=["openai", "hosted_vllm"])
def provider(request):
    return request.param


@pytest.fixture(scope="module")
def chat(server, provider, model):
    def ask(**more):
        fields = {"messages": QUESTION, "max_tokens": 32, "temperature": 0, "num_retries": 0} | more
        return litellm.completion(model=f"{provider}/{model}", api_base=server + "/v1", api_key="none", **fields)
    return ask


def test_a_chat_answers(chat):
    answer = chat()
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_chat_is_the_same(chat):
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
    assert any(getattr(c, "usage", None) and c.usage.completion_tokens > 0 for c in chunks)


def test_a_forced_call_is_parsed(chat):
    weather = {"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"unit": {"enum": ["C", "F"]}}, "required": ["unit"],
        "additionalProperties": False}}}
    answer = chat(tools=[weather], tool_choice={"type": "function", "function": {"name": "get_weather"}})
    call, = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert answer.choices[0].finish_reason == "tool_calls"


def test_errors_keep_their_kinds(chat, server, provider):
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        chat(temperature=-1)
    with pytest.raises(litellm.NotFoundError, match="no-such-model"):
        litellm.completion(model=provider + "/no-such-model", api_base=server + "/v1", api_key="none",
                           messages=QUESTION, num_retries=0)


def test_text_and_embeddings(server, model):
    answer = litellm.text_completion(model="text-completion-openai/" + model, api_base=server + "/v1", api_key="none",
                                     prompt=PROMPT, max_tokens=12, temperature=0)
    assert answer.choices[0].text == NEXT
    vectors = litellm.embedding(model="openai/" + model, api_base=server + "/v1", api_key="none",
                                input=["a", "b"], encoding_format="float")
    assert len(vectors.data) == 2 and len(vectors.data[0]["embedding"]) > 0
