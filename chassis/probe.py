"""`python -P -m chassis.probe [TARGET]`: can a service do its work? Containers' health checks ask.

TARGET, or `$COHABIT_PROBE`, is a service's name, whose address the configuration says; an address
of gRPC (`host:port`, `unix:/path`), asked by grpc.health.v1; or a URL (`http://host:port/path`).
Exits with 0 when the answer is yes, with 1 and a sentence when it is no, with 2 when the question
is wrong. Kubernetes asks by itself, without this.
"""

import argparse
import asyncio
import http.client
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chassis import config, tls_config
from chassis.channel import open_channel

PROBE_ENV = "COHABIT_PROBE"
_WITHIN_S = 3.0
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}


class NotServing(Exception):
    """The service cannot do its work, or does not say so; the text is one sentence."""


def address_here(listen: str) -> str:
    """Where what binds `listen` is dialled from its own container."""
    host, _, port = listen.rpartition(":")
    return listen if listen.startswith("unix:") else f"{_LOOPBACK.get(host, host)}:{port}"


def target_of(asked: str, document: config.Document) -> str:
    """An address or a URL; of a service's name, where that service listens. Raises ConfigError."""
    if ":" in asked:
        return asked
    if asked not in document.grpc_services():
        known = ", ".join(document.grpc_services())
        raise config.ConfigError(
            f"'{asked}' is no service of gRPC in {document.path}; expected one of {known}, "
            "an address or a URL"
        )
    return address_here(document.house().listen_of(asked))


async def ask_grpc(address: str, within_s: float) -> None:
    """Raises NotServing unless grpc.health.v1 at `address` says SERVING."""
    async with open_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=within_s)
        except grpc.aio.AioRpcError as error:
            raise NotServing(f"{address} does not answer: {error.code().name}") from None
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        raise NotServing(f"{address} says {status}")


def ask_http(url: str, within_s: float) -> None:
    """Raises NotServing unless a GET of `url` answers with 2xx."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=within_s)
    try:
        connection.request("GET", parts.path or "/")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise NotServing(f"{url} does not answer: {error}") from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise NotServing(f"{url} answers {status}")


def main() -> None:
    """Ask once."""
    parser = argparse.ArgumentParser(prog="python -m chassis.probe")
    parser.add_argument("target", nargs="?", default=os.environ.get(PROBE_ENV))
    parser.add_argument("--config", type=Path, default=None, help="cohabit.yaml to use")
    options = parser.parse_args()
    if not options.target:
        parser.error(f"name a TARGET, or set {PROBE_ENV}")
    try:
        if options.target.startswith("http://"):
            ask_http(options.target, _WITHIN_S)
        else:
            document = config.load(options.config)
            tls_config.adopt(document)
            asyncio.run(ask_grpc(target_of(options.target, document), _WITHIN_S))
    except config.ConfigError as error:
        config.fail(error)
    except NotServing as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
