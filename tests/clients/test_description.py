"""schemathesis: whatever the description of the routes allows, and much that it does not, gets the answers that it promises.

A short run; a long one is `schemathesis run URL/api-doc/openapi.json --max-examples 100` with the same checks.
"""
import pathlib
import subprocess
import sys

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_the_description_holds(simulated):
    program = pathlib.Path(sys.executable).with_name("schemathesis")
    command = [
        program, "run", simulated + "/api-doc/openapi.json", "--checks", CHECKS, "--phases", "fuzzing",
        "--max-examples", "4", "--seed", "1", "--generation-database", "none", "--request-timeout", "10",
        "--suppress-health-check", "all", "--warnings", "off",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
