#!/usr/bin/env python3
"""Mixed load for a while with a device killed again and again: no wrong byte, no lost request, flat memory.

    tests/soak/soak.py --minutes 30 target/release/ropeteam
    tests/soak/soak.py --minutes 1 --kill-every 5 --model tests/fixtures/tiny/llama target/debug/ropeteam -- --device-count 2

Needs nothing but Python 3.9 and Linux. It starts the server with its devices in processes of their own, asks for each request once
undisturbed, then has workers ask for them at random and compares. Prints a line per kill and a summary; the exit code is 1 when an
answer was wrong or lost, or memory grew by more than 5 % over its level after the first minute (or a third of a shorter run).
"""

import argparse
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "maximum": 99}, "name": {"type": "string", "maxLength": 8}},
    "required": ["age", "name"],
    "additionalProperties": False,
}


def requests():
    """Path and body of each request: greedy, sampled, several choices, constrained, calls of tools; streamed and whole."""
    kinds = []
    for seed, prompt in enumerate(["The rope holds", "Once upon a time there was", "A list of mountains:"]):
        base = {"prompt": prompt, "max_tokens": 48 + 32 * seed, "seed": seed}
        kinds += [
            ("/v1/completions", {**base, "temperature": 0}),
            ("/v1/completions", {**base, "temperature": 1, "top_p": 0.9, "repetition_penalty": 1.1}),
            ("/v1/completions", {**base, "temperature": 1, "n": 4}),
            ("/v1/completions", {**base, "temperature": 1, "response_format": {
                "type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}}),
        ]
    kinds.append(("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Note Ann, 40."}], "max_tokens": 64, "seed": 4, "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "note", "parameters": SCHEMA}}]}))
    return [(path, {**body, "stream": stream}) for path, body in kinds for stream in (False, True)]


def forget(value):
    """Without what differs from request to request."""
    if isinstance(value, dict):
        return {k: forget(v) for k, v in value.items() if k not in ("id", "created")}
    return [forget(v) for v in value] if isinstance(value, list) else value


def ask(port, path, body, seen=None):
    """The answer, comparable; `seen` is called with the time of each event."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{response.status} {response.read()[:200]!r}")
        if not body["stream"]:
            answer = forget(json.loads(response.read()))
            answer["usage"].pop("prompt_tokens_details", None)  # the cache may hold more or less of the prompt
            return answer
        texts, ends, done = {}, {}, False
        for line in response:
            if not line.startswith(b"data:"):
                continue
            if line[5:].strip() == b"[DONE]":
                done = True
                continue
            if seen:
                seen(time.monotonic())
            event = json.loads(line[5:])
            if "error" in event:
                raise RuntimeError(f"an error in the stream: {event['error']}")
            for choice in event.get("choices", []):
                index = choice["index"]
                delta = choice.get("delta", choice)
                calls = delta.get("tool_calls") or []
                arguments = "".join(call["function"].get("arguments") or "" for call in calls)
                text = delta.get("text") or delta.get("content") or ""
                texts[index] = texts.get(index, "") + text + arguments
                if choice.get("finish_reason"):
                    ends[index] = choice["finish_reason"]
        if not done:
            raise RuntimeError("the stream broke off")
        return [texts, ends]
    finally:
        connection.close()


def children(parent):
    """Processes that `parent` started."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                rest = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(rest[1]) == parent and rest[0] != "Z":
            found.append(int(pid))
    return found


def resident(pid):
    """Memory of a process in MiB; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


class Soak:
    def __init__(self, arguments):
        self.arguments = arguments
        self.port = free_port()
        self.kinds = requests()
        self.wanted = []
        self.ends = None
        self.answers, self.wrong, self.lost = 0, [], []
        self.lock = threading.Lock()
        self.streams = {}  # stream -> times of its events
        self.kills = []
        self.memory = []

    def run(self):
        server = subprocess.Popen(
            [self.arguments.binary, "serve", "--port", str(self.port), "--isolation", "process", "--management-port", "off",
             "--restart-budget", "1000000", "--log-requests", "off", "--log-level", "error"]
            + (["--model", self.arguments.model] if self.arguments.model else []) + self.arguments.flags)
        try:
            self.wait_ready(server)
            self.wanted = [ask(self.port, *kind) for kind in self.kinds]
            self.begun = time.monotonic()
            self.ends = self.begun + self.arguments.minutes * 60
            threads = [threading.Thread(target=self.work, args=(n,)) for n in range(self.arguments.clients)]
            threads.append(threading.Thread(target=self.kill, args=(server.pid,)))
            threads.append(threading.Thread(target=self.watch, args=(server.pid,)))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            server.send_signal(signal.SIGTERM)
            code = server.wait(60)
        finally:
            server.kill()
        return self.report(code)

    def wait_ready(self, server):
        for _ in range(1200):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            if server.poll() is not None:
                sys.exit(f"the server ended with {server.returncode}")
            time.sleep(0.1)
        sys.exit("the server did not become ready")

    def work(self, number):
        chance = random.Random(number)
        turn = 0
        while time.monotonic() < self.ends:
            kind, turn = chance.randrange(len(self.kinds)), turn + 1
            path, body = self.kinds[kind]
            times = []
            if body["stream"]:
                self.streams[number, turn] = times
            try:
                answer = ask(self.port, path, body, times.append)
                with self.lock:
                    self.answers += 1
                    if answer != self.wanted[kind]:
                        self.wrong.append((kind, answer))
            except Exception as error:  # whatever it is, the request was lost
                with self.lock:
                    self.lost.append((kind, repr(error)))

    def kill(self, server):
        while time.monotonic() + self.arguments.kill_every < self.ends:
            time.sleep(self.arguments.kill_every)
            devices = children(server)
            if devices:
                os.kill(random.choice(devices), signal.SIGKILL)
                self.kills.append(time.monotonic())

    def watch(self, server):
        while time.monotonic() < self.ends:
            self.memory.append((time.monotonic() - self.begun, resident(server), sum(map(resident, children(server)))))
            time.sleep(1)

    def pauses(self, kill):
        """Of each stream that was under way at the kill: its longest pause from then on. What was on its way at the kill still comes."""
        found = []
        for times in list(self.streams.values()):
            if times and times[0] <= kill < times[-1]:
                last = max(n for n, t in enumerate(times) if t <= kill)
                gaps = [b - max(a, kill) for a, b in zip(times[last:], times[last + 1:]) if a < kill + 1]
                found.append(max(gaps))
        return found

    def report(self, code):
        longest = []
        for kill in self.kills:
            pauses = self.pauses(kill)
            if pauses:
                longest.append(max(pauses))
                print(f"kill at {kill - self.begun:6.1f} s: {len(pauses)} streams, next token after {max(pauses):.3f} s at most")
        settled = min(60, self.arguments.minutes * 20)
        third = max(1, len(self.memory) // 6)
        grown = {}
        for name, column in (("server", 1), ("devices", 2)):
            early = [m[column] for m in self.memory if m[0] >= settled][:third] or [1]
            late = [m[column] for m in self.memory][-third:]
            grown[name] = (statistics.median(early), statistics.median(late))
        print(f"answers {self.answers}, wrong {len(self.wrong)}, lost {len(self.lost)}, kills {len(self.kills)}, exit code {code}")
        if longest:
            print(f"kill to next token: median {statistics.median(longest):.3f} s, worst {max(longest):.3f} s (slowest stream of each kill)")
        for name, (early, late) in grown.items():
            print(f"memory of {name}: {early:.0f} MiB, at the end {late:.0f} MiB ({late / early * 100 - 100:+.1f} %)")
        for what in self.wrong[:3] + self.lost[:3]:
            print("  ", str(what)[:400])
        flat = all(late <= early * 1.05 + 1 for early, late in grown.values())
        return 0 if not self.wrong and not self.lost and flat and code == 0 else 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--model", help="default: the server's")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--kill-every", type=float, default=20, help="seconds")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("flags", nargs="*", help="further flags of the server, after --")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the server is ended too
    sys.exit(Soak(parser.parse_args()).run())
