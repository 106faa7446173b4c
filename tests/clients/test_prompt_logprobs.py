"""What lm-eval reads, `echo` with `logprobs` and `max_tokens` 0 or 1, against the values that transformers computed in float32."""
import json
import pathlib

import openai
import pytest

from conftest import running

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures/smollm2"
COUNT = 256
# The fixture's weights are those of the served file rounded to bf16.
EACH, MEAN = 0.1, 0.002


@pytest.fixture(scope="module")
def client():
    options = ("--dtype", "f32", "--quantize", "none", "--max-model-len", "512", "--log-requests", "off")
    with running(*options) as url:
        yield openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_the_prompt_s_values_are_those_of_transformers(client, max_tokens):
    fixture = json.loads((FIXTURES / "perplexity.json").read_text())
    ids = fixture["ids"][:COUNT]
    right = [-nll for nll in fixture["results"]["fp32_compute_bf16_weights"]["nll_per_token"][:COUNT - 1]]
    answer = client.completions.create(
        model="dummy", prompt=ids, echo=True, logprobs=1, max_tokens=max_tokens, temperature=0, seed=1234,
    )
    scores = answer.choices[0].logprobs
    assert len(scores.token_logprobs) == COUNT + max_tokens == len(scores.tokens) == len(scores.text_offset)
    assert scores.token_logprobs[0] is None and scores.top_logprobs[0] is None
    own = scores.token_logprobs[1:COUNT]
    differences = [abs(a - b) for a, b in zip(own, right)]
    assert max(differences) < EACH, max(differences)
    assert abs(sum(own) - sum(right)) / len(own) < MEAN
    # How lm-eval tells whether the model would have written the text itself.
    for value, token, best in zip(own, scores.tokens[1:], scores.top_logprobs[1:]):
        assert best[token] == value and max(best.values()) >= value


def test_the_best_alternatives_are_those_of_transformers(client):
    for item in json.loads((FIXTURES / "goldens.json").read_text())["items"][:4]:
        answer = client.completions.create(
            model="dummy", prompt=item["ids"], logprobs=5, max_tokens=1, temperature=0,
            extra_body={"return_tokens_as_token_ids": True},
        )
        found = answer.choices[0].logprobs.top_logprobs[0]
        for token, _, logprob in item["fp32"]["first_top20"][:3]:
            assert abs(found[f"token_id:{token}"] - logprob) < EACH
