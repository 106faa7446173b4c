"""lm-eval's local-completions on a few items of our tasks: log-likelihoods of answers, and answers written up to a stop string.

The whole tasks, and the same with the transformers backend: docs/conformance.md.
"""
import json
import os
import pathlib
import subprocess
import sys

TASKS = pathlib.Path(__file__).with_name("lm_eval")


def test_a_few_items_of_each_kind(server, model, tmp_path):
    program = pathlib.Path(sys.executable).with_name("lm_eval")
    arguments = f"base_url={server}/v1/completions,model={model},tokenizer_backend=remote,num_concurrent=4"
    command = [
        program, "run", "--model", "local-completions", "--model_args", arguments, "--include_path", TASKS,
        "--tasks", "ropeteam_facts,ropeteam_sums", "--limit", "12", "--output_path", tmp_path,
    ]
    environment = {**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=TASKS, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    [written] = tmp_path.glob("**/results_*.json")
    results = json.loads(written.read_text())["results"]
    # Chance gives a quarter; what the model knows was measured with transformers.
    assert results["ropeteam_facts"]["acc,none"] >= 0.5, results
    assert results["ropeteam_sums"]["exact_match,stripped"] >= 0.25, results
