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
