# Ropeteam for the CPU. Build in the repository's root: docker build -f docker/cpu.Dockerfile -t ropeteam .
FROM rust:1.89-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin ropeteam

FROM debian:bookworm-slim
# Certificates shall be the newest.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 ropeteam
COPY --from=build /src/target/release/ropeteam /usr/local/bin/ropeteam
USER ropeteam
EXPOSE 1025
HEALTHCHECK --start-period=120s CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/1025 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && head -1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["ropeteam"]
CMD ["serve", "--host", "0.0.0.0"]
