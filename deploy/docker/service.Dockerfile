# What runs no model: broker, scheduler, jobs, simulated, the edge, the command. The images of
# engines are built on top of it. From the repository's root: deploy/docker/build.
#
# Build arguments: BASE, any image of Debian 12 or Ubuntu 24.04 (for engines on a card: one with the
# CUDA libraries); VERSION. Build secrets, both optional: `pip` (a pip.conf: index, proxy) and `ca`
# (certificates to trust while building, at /run/secrets/ca). None of them ends up in the image.
ARG BASE=debian:bookworm-20250520-slim

FROM ${BASE} AS base
# The base is pinned; what Debian has mended since comes with the upgrade.
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt,sharing=locked \
    apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get upgrade -qy \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        ca-certificates python3 tini \
    && rm -rf /var/log/* /var/cache/debconf/*-old
RUN groupadd --gid 10001 cohabit \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin cohabit \
    && install -d -o 10001 -g 10001 -m 0755 /etc/cohabit /etc/cohabit/keys /var/lib/cohabit \
        /var/lib/cohabit/models /var/lib/cohabit/state /var/cache/cohabit \
    && install -d -o 10001 -g 10001 -m 0700 /run/cohabit

FROM base AS packages
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt,sharing=locked \
    apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends python3-venv
WORKDIR /src
RUN python3 -m venv /opt/cohabit \
    && echo /opt/cohabit/house > "$(echo /opt/cohabit/lib/python3*/site-packages)/house.pth"
COPY pyproject.toml constraints.txt deploy/docker/needs.py ./
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    python3 needs.py dependencies traces > needs.txt \
    && /opt/cohabit/bin/pip install -q --disable-pip-version-check -c constraints.txt -r needs.txt

FROM packages AS house
COPY README.md LICENSE ./
COPY gen gen
COPY chassis chassis
COPY hosting hosting
COPY imaging imaging
COPY services services
COPY edge edge
COPY cli cli
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=ca,target=/run/secrets/ca \
    /opt/cohabit/bin/pip install -q --disable-pip-version-check --no-deps \
        --target /opt/cohabit/house .

FROM base
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="cohabit/service" \
      org.opencontainers.image.description="Cohabit: the services that run no model, and the edge" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=packages /opt/cohabit /opt/cohabit
COPY --from=house /opt/cohabit/house /opt/cohabit/house
ENV PATH=/opt/cohabit/house/bin:/opt/cohabit/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GRPC_VERBOSITY=NONE \
    COHABIT_CONFIG=/etc/cohabit/cohabit.yaml \
    COHABIT_PROBE=broker
WORKDIR /etc/cohabit
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-P", "-m", "chassis.probe"]
# Engines may leave children behind; tini, as process 1, reaps them and passes signals on.
ENTRYPOINT ["tini", "--", "python3", "-P", "-m"]
CMD ["services.broker"]
