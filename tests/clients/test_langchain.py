"""The `langchain-openai` package, unmodified."""
from typing import Literal

import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

QUESTION = "What is the capital of Japan? Answer in one sentence."
ANSWER = "The capital of Japan is Tokyo."
PROMPT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,"
NEXT = " 11, 12, 13,"


@pytest.fixture(scope="module")
def where(server, model):
    return {"base_url": server + "/v1", "api_key": "none", "model": model, "max_retries": 0}


@pytest.fixture(scope="module")
def chat(where):
    return ChatOpenAI(**where, temperature=0, max_tokens=32)


def test_a_chat_answers_whole_and_streamed(chat):
    answer = chat.invoke(QUESTION)
    assert answer.content == ANSWER
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.content for chunk in chat.stream(QUESTION)) == ANSWER


def test_a_batch_is_answered_in_order(chat):
    answers = chat.batch([QUESTION, QUESTION.replace("Japan", "France")])
    assert "Tokyo" in answers[0].content and "Paris" in answers[1].content


def test_a_structured_answer_is_parsed(where):
    class Choice(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        drink: Literal["tea", "coffee"]
        cups: int = pydantic.Field(ge=1, le=9)

    chat = ChatOpenAI(**where, temperature=0, max_tokens=60)
    for method in ("json_schema", "function_calling"):
        answer = chat.with_structured_output(Choice, method=method).invoke("Tea or coffee?")
        assert isinstance(answer, Choice)


def test_a_call_and_its_result_go_round(chat):
    def get_weather(unit: Literal["C", "F"]) -> str:
        """The weather in Oslo."""
        return unit

    bound = chat.bind_tools([get_weather], tool_choice="get_weather")
    question = HumanMessage("What is the weather in Oslo?")
    asked = bound.invoke([question])
    assert isinstance(asked, AIMessage)
    call, = asked.tool_calls
    assert call["name"] == "get_weather" and call["args"]["unit"] in ("C", "F")
    answer = chat.bind_tools([get_weather]).invoke([question, asked, ToolMessage("sunny", tool_call_id=call["id"])])
    assert answer.response_metadata["finish_reason"] in ("stop", "length", "tool_calls")


def test_text_and_embeddings(where):
    assert OpenAI(**where, temperature=0, max_tokens=12).invoke(PROMPT) == NEXT
    # Token counts by tiktoken need its tables from the network, and are those of another model.
    embeddings = OpenAIEmbeddings(**where, check_embedding_ctx_length=False)
    cat, mat, stocks = embeddings.embed_documents(["The cat sat.", "A cat is sitting.", "Stock prices fell sharply."])
    cosine = lambda a, b: sum(x * y for x, y in zip(a, b))
    assert cosine(cat, mat) > cosine(cat, stocks)
