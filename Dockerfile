# A CPU image by default. For NVIDIA GPUs, from images that carry CUDA, for the GPU's compute capability:
#
#   docker build -t tito --build-arg FEATURES=cuda --build-arg CUDA_COMPUTE_CAP=90 \
#     --build-arg BUILDER=nvidia/cuda:12.8.1-devel-ubuntu24.04 \
#     --build-arg RUNTIME=nvidia/cuda:12.8.1-runtime-ubuntu24.04 .
ARG BUILDER=debian:bookworm
ARG RUNTIME=debian:bookworm-slim

FROM ${BUILDER} AS builder
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential ca-certificates curl pkg-config \
    && rm -rf /var/lib/apt/lists/*
ARG RUST=1.95.0
ENV PATH=/root/.cargo/bin:$PATH
RUN curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://sh.rustup.rs \
    | sh -s -- -y --profile minimal --default-toolchain "${RUST}"
WORKDIR /tito
# Dependencies first: this layer is built again only when they change. The stand-ins are replaced below.
COPY Cargo.toml Cargo.lock ./
COPY benches benches
ARG FEATURES=mistralrs
ARG CUDA_COMPUTE_CAP
RUN mkdir src && echo 'fn main() {}' > src/main.rs && touch src/lib.rs \
    && cargo build --locked --release --no-default-features --features "${FEATURES}"
COPY README.md ./
COPY src src
RUN touch src/main.rs src/lib.rs \
    && cargo build --locked --release --no-default-features --features "${FEATURES}"

FROM ${RUNTIME}
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home tito \
    && install --directory --owner tito /home/tito/.cache /home/tito/.cache/huggingface
COPY --from=builder /tito/target/release/tito /usr/local/bin/tito
USER 10001
# Models of the hub are kept here; mount a volume to keep them longer.
ENV HF_HOME=/home/tito/.cache/huggingface
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m \
    CMD ["curl", "--fail", "--silent", "--output", "/dev/null", "http://127.0.0.1:8000/health"]
# Running requests are finished first.
STOPSIGNAL SIGTERM
ENTRYPOINT ["tito", "serve"]
