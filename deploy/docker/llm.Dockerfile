# Language models: the house, llama.cpp and what forms answers. From the repository's root:
# deploy/docker/build.
#
# Build arguments: SERVICE, the image it stands on; BASE, where the library is compiled (for a card:
# an image with nvcc, of the same distribution as SERVICE's); CMAKE_ARGS, for a card with
# -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=…; VERSION. Secrets as in service.Dockerfile.
ARG BASE=debian:bookworm-20250520-slim
ARG SERVICE=cohabit/service:0.1.0

FROM ${BASE} AS wheels
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt,sharing=locked \
    apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        ca-certificates cmake g++ make ninja-build python3 python3-venv
WORKDIR /src
RUN python3 -m venv /opt/build
COPY pyproject.toml constraints.txt deploy/docker/needs.py scripts/llama.cmake ./
# Not for the processor that compiles: the image may run on another. What pip keeps of a build does
# not say how it was built, so that each way has a cache of its own.
ARG CMAKE_ARGS="-DGGML_NATIVE=OFF"
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    export CMAKE_ARGS="$CMAKE_ARGS -DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE=/src/llama.cmake" \
    && python3 needs.py llm > needs.txt \
    && /opt/build/bin/pip wheel -q --disable-pip-version-check -c constraints.txt \
        --cache-dir "/root/.cache/pip/$(echo "$CMAKE_ARGS" | sha256sum | cut -c 1-16)" \
        -r needs.txt -w /wheels

FROM ${SERVICE}
USER root
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt,sharing=locked \
    apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends libgomp1 \
    && rm -rf /var/log/* /var/cache/debconf/*-old
RUN --mount=type=bind,from=wheels,source=/,target=/build \
    pip install -q --disable-pip-version-check --no-index --find-links /build/wheels \
        -c /build/src/constraints.txt -r /build/src/needs.txt
USER 10001:10001
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="cohabit/llm" \
      org.opencontainers.image.description="Cohabit: language models, embeddings and rerankers" \
      org.opencontainers.image.version="${VERSION}"
ENV COHABIT_PROBE=llm
CMD ["services.llm"]
