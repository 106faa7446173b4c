# Ropeteam for Ascend NPUs. Build in the repository's root: docker build -f docker/ascend.Dockerfile -t ropeteam-ascend .
# The tag says CANN version, chip, system and Python; take the one of the machine's driver and chip (910b: Atlas A2, a3: Atlas A3).
ARG CANN=8.3.rc1-910b-ubuntu22.04-py3.11

FROM rust:1.89-bullseye AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin ropeteam

FROM ascendai/cann:${CANN}
# Driver and management library are the host's, mounted when the container starts.
ENV LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64/common:/usr/local/Ascend/driver/lib64/driver:/usr/local/dcmi
COPY --from=build /src/target/release/ropeteam /usr/local/bin/ropeteam
EXPOSE 1025
# set_env.sh adds CANN's own folders to LD_LIBRARY_PATH.
ENTRYPOINT ["bash", "-c", "source /usr/local/Ascend/ascend-toolkit/set_env.sh && exec ropeteam \"$@\"", "ropeteam"]
CMD ["serve", "--device", "ascend:0", "--host", "0.0.0.0"]
