"""Do structured answers delay plain streams? p99 of the time between two tokens of plain streams, with and without company that is
structured. The number of streams is the same in both: ten, seven of which are measured; the other three are plain or follow a JSON
schema, a new one each time. Rounds of both take turns, so that what else the machine does meets both.

    python benches/structured.py http://127.0.0.1:1025 ROUNDS SECONDS_PER_ROUND
"""
import http.client
import json
import random
import statistics
import sys
import threading
import time
import urllib.parse

STREAMS, MEASURED, STRUCTURED = 10, 7, 3
TOKENS = 64


def schema(number):
    return {
        "type": "object",
        "properties": {
            f"name{number}": {"type": "string", "maxLength": 40},
            "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 5},
        },
        "required": [f"name{number}", "age", "tags"],
        "additionalProperties": False,
    }


def stream(address, structured, number, gaps):
    """Reads one answer; adds the times between its tokens to `gaps`."""
    message = {"role": "user", "content": f"Tell me story {number} about a mountain."}
    body = {"messages": [message], "max_tokens": TOKENS, "stream": True, "temperature": 0.8, "seed": number}
    if structured:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema(number)}}
    else:
        body["ignore_eos"] = True
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    last = None
    for line in answer:
        if line.startswith(b"data: {") and b'"content":' in line:
            now = time.perf_counter()
            if last and gaps is not None:
                gaps.append(now - last)
            last = now
    connection.close()


def one_round(address, structured, seconds):
    """p50 and p99 in milliseconds, and how many times they are of."""
    gaps, end, base = [], time.time() + seconds, random.randrange(10**6)

    def worker(index):
        turn = 0
        while time.time() < end:
            follows = index >= STREAMS - structured
            stream(address, follows, base + index * 1000 + turn, gaps if index < MEASURED else None)
            turn += 1

    workers = [threading.Thread(target=worker, args=(index,)) for index in range(STREAMS)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    gaps.sort()
    return gaps[len(gaps) // 2] * 1e3, gaps[int(len(gaps) * 0.99)] * 1e3, len(gaps)


def main():
    address = urllib.parse.urlsplit(sys.argv[1]).netloc
    rounds, seconds = int(sys.argv[2]), float(sys.argv[3])
    p99 = {0: [], STRUCTURED: []}
    for number in range(rounds):
        order = (0, STRUCTURED) if number % 2 == 0 else (STRUCTURED, 0)
        for structured in order:
            p50, high, count = one_round(address, structured, seconds)
            p99[structured].append(high)
            print(f"{structured} of {STREAMS} structured: p50 {p50:.1f} ms, p99 {high:.1f} ms of {count} gaps", flush=True)
    without, beside = statistics.median(p99[0]), statistics.median(p99[STRUCTURED])
    print(f"median p99 {without:.1f} ms without, {beside:.1f} ms beside structured ones: {beside / without:.2f} times")


if __name__ == "__main__":
    main()
