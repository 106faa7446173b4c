"""Starts the real server process, once for all client tests of a kind.

Run through `cargo test --test clients`, which sets ROPETEAM_BIN and makes the virtual environment.
"""
import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request

import pytest


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(*options):
    """Base URL of a ready server with these options."""
    port = free_port()
    process = subprocess.Popen([os.environ["ROPETEAM_BIN"], "serve", "--port", str(port), *options])
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 300  # the model may have to be fetched first
        while True:
            assert process.poll() is None, f"the server ended with {process.returncode}"
            assert time.monotonic() < deadline, "the server did not become ready"
            try:
                if urllib.request.urlopen(url + "/health", timeout=2).status == 200:
                    break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0, "SIGTERM must end in exit code 0"


@pytest.fixture(scope="session")
def server():
    """A server with the embedded default model."""
    with running("--max-model-len", "2048") as url:
        yield url


@pytest.fixture(scope="session")
def model(server):
    """The name of the model that `server` serves."""
    with urllib.request.urlopen(server + "/v1/models") as answer:
        return json.load(answer)["data"][0]["id"]


@pytest.fixture(scope="session")
def simulated():
    """A server without weights that answers at once."""
    with running("--device", "simulated", "--simulated-time", "none", "--max-model-len", "256", "--log-requests", "off") as url:
        yield url
