# Background removal: the house, onnxruntime and the compiled solver of foregrounds. From the
# repository's root: deploy/docker/build.
#
# Build arguments: SERVICE, the image it stands on; BASE, where wheels are made; EXTRAS, which
# extras of pyproject.toml it has ("matte torch" for networks of torch, which on a card bring the
# CUDA libraries with them); VERSION. Secrets as in service.Dockerfile.
ARG BASE=debian:bookworm-20250520-slim
ARG SERVICE=cohabit/service:0.1.0

FROM ${BASE} AS wheels
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt,sharing=locked \
    apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        ca-certificates python3 python3-venv
WORKDIR /src
RUN python3 -m venv /opt/build
COPY pyproject.toml constraints.txt deploy/docker/needs.py ./
ARG EXTRAS=matte
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    python3 needs.py $EXTRAS > needs.txt \
    && /opt/build/bin/pip wheel -q --disable-pip-version-check -c constraints.txt \
        -r needs.txt -w /wheels

FROM ${SERVICE}
USER root
RUN --mount=type=bind,from=wheels,source=/,target=/build \
    pip install -q --disable-pip-version-check --no-index --find-links /build/wheels \
        -c /build/src/constraints.txt -r /build/src/needs.txt
USER 10001:10001
# The solver's machine code, for a processor like the one that builds; on another it is compiled at
# the first load and kept there, for which the folder must be one that can be written.
ENV COHABIT_PROBE=matte \
    NUMBA_CACHE_DIR=/var/cache/cohabit/numba
RUN python3 -P -c "from services.matte.solving import warm_up; warm_up()"
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="cohabit/matte" \
      org.opencontainers.image.description="Cohabit: backgrounds removed from pictures" \
      org.opencontainers.image.version="${VERSION}"
CMD ["services.matte"]
