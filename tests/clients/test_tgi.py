"""TGI's own client and huggingface_hub's, unmodified."""
import pytest
from huggingface_hub import InferenceClient
from text_generation import Client
from text_generation.errors import ValidationError

PROMPT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,"
NEXT = " 11, 12, 13,"


@pytest.fixture(scope="module")
def tgi(server):
    return Client(server, timeout=60)


@pytest.fixture(scope="module")
def hub(server):
    return InferenceClient(server, timeout=60)


def test_generate_reports_its_details(tgi):
    answer = tgi.generate(PROMPT, max_new_tokens=12, decoder_input_details=True)
    assert answer.generated_text == NEXT
    details = answer.details
    assert details.finish_reason == "length"
    assert details.generated_tokens == 12 == len(details.tokens)
    assert details.prefill[0].logprob is None
    assert "".join(t.text for t in details.tokens) == NEXT


def test_the_stream_ends_with_the_whole_text(tgi):
    events = list(tgi.generate_stream(PROMPT, max_new_tokens=12))
    assert len(events) == 12
    assert "".join(e.token.text for e in events) == NEXT
    assert events[-1].generated_text == NEXT
    assert all(e.generated_text is None for e in events[:-1])


def test_best_of_keeps_the_others(tgi):
    answer = tgi.generate(PROMPT, max_new_tokens=4, best_of=2, do_sample=True)
    assert len(answer.details.best_of_sequences) == 1


def test_validation_errors_are_recognised(tgi):
    with pytest.raises(ValidationError, match="max_new_tokens"):
        tgi.generate("x", max_new_tokens=10_000)


def test_inference_client_generates_and_streams(hub):
    assert hub.text_generation(PROMPT, max_new_tokens=12) == NEXT
    assert "".join(hub.text_generation(PROMPT, max_new_tokens=12, stream=True)) == NEXT
    answer = hub.text_generation(PROMPT, max_new_tokens=12, details=True)
    assert answer.details.generated_tokens == 12


def test_inference_client_chats(hub):
    messages = [{"role": "user", "content": "What is the capital of Japan? Answer in one sentence."}]
    answer = hub.chat_completion(messages, max_tokens=32, temperature=0)
    assert answer.choices[0].message.content == "The capital of Japan is Tokyo."


def test_the_best_tokens_are_parsed(tgi):
    answer = tgi.generate(PROMPT, max_new_tokens=3, top_n_tokens=2)
    assert len(answer.details.top_tokens) == 3
    assert all(best[0].id == token.id for best, token in zip(answer.details.top_tokens, answer.details.tokens))


def test_inference_client_streams_details(hub):
    events = list(hub.text_generation(PROMPT, max_new_tokens=3, stream=True, details=True))
    assert events[-1].generated_text == " 11"
    assert events[-1].details.generated_tokens == 3
