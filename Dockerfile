# syntax=docker/dockerfile:1.7
#
# docker build -t tito .                                                for CPUs
# docker build -t tito:cuda --target cuda .                             for NVIDIA GPUs of one kind, by default 9.0
# docker build -t tito:cuda --target cuda --build-arg CUDA_COMPUTE_CAP=80 .
#
# docker build -t tito --target packed --build-context program=DIR .    of what DIR has, compiling nothing: tito, LICENSE and
#                                                                       THIRD-PARTY-LICENSES, as in a tarball of scripts/package
#
# FEATURES names the features to build: empty, or only `cuda` for the second image, leaves mistral.rs out.
FROM rust:1.95.0-bookworm AS source
WORKDIR /tito

# The licences of what the images below are made of. Python comes with the image of Rust.
FROM source AS licences
COPY Cargo.toml Cargo.lock LICENSE README.md ./
COPY .cargo .cargo
COPY benches benches
COPY crates crates
COPY src src
COPY scripts/third-party-licenses scripts/
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    install -D --mode 644 --target-directory /out LICENSE \
    && scripts/third-party-licenses >/out/THIRD-PARTY-LICENSES

FROM source AS build-cpu
ARG FEATURES=mistralrs
COPY Cargo.toml Cargo.lock README.md ./
COPY .cargo .cargo
COPY benches benches
COPY crates crates
COPY src src
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,id=tito-target-cpu,target=/tito/target \
    cargo build --locked --profile dist --no-default-features --features "${FEATURES}" \
    && install -D --strip target/dist/tito /out/tito

FROM source AS toolchain
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-pip \
    && rm -rf /var/lib/apt/lists/*
ARG CUDA_COMPUTE_CAP=90
COPY scripts/cuda-toolchain scripts/cuda-toolchain.txt scripts/cuda-forward.c scripts/environment.sh scripts/
RUN --mount=type=cache,target=/root/.cache/pip \
    scripts/cuda-toolchain /opt/cuda-toolchain >/opt/cuda-environment

FROM toolchain AS build-cuda
ARG FEATURES=mistralrs,cuda
COPY Cargo.toml Cargo.lock README.md ./
COPY .cargo .cargo
COPY benches benches
COPY crates crates
COPY src src
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,id=tito-target-cuda,target=/tito/target \
    . /opt/cuda-environment \
    && cargo build --locked --profile dist --no-default-features --features "${FEATURES}" \
    && install -D --strip target/dist/tito /out/tito
# What tito opens when it first needs it; the driver comes with the machine.
WORKDIR /opt/cuda-toolchain/nvidia/cu13/lib
RUN install -D --target-directory /out/lib \
    libcublas.so.* libcublasLt.so.* libcurand.so.* libnvrtc.so.* libnvrtc-builtins.so.* \
    && for part in cublas curand cuda_nvrtc; do \
        install -D --mode 644 /opt/cuda-toolchain/nvidia_"$part"-*.dist-info/licenses/License.txt \
            /out/licences/NVIDIA-"$part" || exit 1; \
    done

FROM debian:12.12-slim AS runtime
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home tito \
    && install --directory --owner tito /home/tito/.cache /home/tito/.cache/huggingface
# It runs on a read-only root, too, where what it writes is elsewhere:
# docker run --read-only --tmpfs /tmp --volume hub:/home/tito/.cache/huggingface ... tito MODEL
USER 10001
# Models of the hub are kept here; mount a volume to keep them longer.
ENV HF_HOME=/home/tito/.cache/huggingface
EXPOSE 8000
# Of the default port, without TLS.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m \
    CMD ["curl", "--fail", "--silent", "--output", "/dev/null", "http://127.0.0.1:8000/health"]
# Running requests are finished first.
STOPSIGNAL SIGTERM
ENTRYPOINT ["tito", "serve"]

# An image says where its licences are, as Debian's packages do: /usr/share/doc.
FROM runtime AS cuda
# What NVIDIA's container toolkit puts into the container: GPUs, and of the driver what computes.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=licences /out /usr/share/doc/tito-server
COPY --from=build-cuda /out/licences /usr/share/doc/tito-server
COPY --from=build-cuda /out/lib /usr/local/lib
COPY --from=build-cuda /out/tito /usr/local/bin/tito

# What scripts/package has packed, or any other program that runs on this Debian; a release has the program of its packages.
FROM runtime AS packed
# hadolint ignore=DL3022
COPY --from=program --chmod=644 LICENSE THIRD-PARTY-LICENSES /usr/share/doc/tito-server/
# hadolint ignore=DL3022
COPY --from=program --chmod=755 tito /usr/local/bin/tito

# The last stage is the one that is built unless another is asked for.
FROM runtime AS cpu
COPY --from=licences /out /usr/share/doc/tito-server
COPY --from=build-cpu /out/tito /usr/local/bin/tito
