"""npm's clients, unmodified: `npm/*.test.mjs`. Skipped, visibly, where there is no Node.js to run them.

ROPETEAM_CLIENTS_NPM names a folder for their packages, which is kept from run to run.
"""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

SOURCES = pathlib.Path(__file__).with_name("npm")
TESTS = sorted(SOURCES.glob("*.test.mjs"))
OLDEST = 20


def absent():
    """Why they cannot run here; None if they can."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "node and npm are not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if int(re.match(r"v(\d+)", version).group(1)) < OLDEST:
        return f"node {version.strip()} is older than {OLDEST}"
    return None


WHY = absent()
pytestmark = pytest.mark.skipif(WHY is not None, reason=f"npm clients not run: {WHY}")


@pytest.fixture(scope="module")
def folder():
    """The tests, beside their packages: imports are looked up from the importing file."""
    place = pathlib.Path(os.environ["ROPETEAM_CLIENTS_NPM"])
    place.mkdir(parents=True, exist_ok=True)
    wanted = (SOURCES / "package.json").read_bytes()
    installed = place / "installed.json"
    if not installed.exists() or installed.read_bytes() != wanted:
        (place / "package.json").write_bytes(wanted)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"],
                       cwd=place, check=True, timeout=300)
        installed.write_bytes(wanted)
    for source in SOURCES.glob("*.mjs"):
        shutil.copy(source, place)
    return place


@pytest.mark.parametrize("name", [path.name for path in TESTS])
def test_unmodified(folder, server, model, name):
    done = subprocess.run(
        ["node", "--test", name], cwd=folder, capture_output=True, text=True, timeout=300,
        env=os.environ | {"ROPETEAM_URL": server, "ROPETEAM_MODEL": model},
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
