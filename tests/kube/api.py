"""A stand-in for a cluster's API server, so that the real Helm installs, upgrades and rolls back.

It answers what Helm asks: discovery, objects by REST, server-side apply, merge patches. It runs no
pod and asks nobody who they are. It is no Kubernetes.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.kube.cluster import KINDS, OF_THE_CLUSTER, ApiError, Cluster, Key, patched
from tests.kube.protobuf import MAGIC, object_of
from tests.kube.schemas import Object


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"
    wbufsize = (
        1 << 16
    )  # an answer in one piece: in two, the second would wait for an acknowledgement

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is printed."""

    def _serve(self) -> None:
        body = self._body()
        split = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        try:
            with self.cluster.lock:
                code, answer = self._answer(split.path, query, body)
        except ApiError as error:
            code = error.code
            answer = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "message": str(error),
                "reason": error.reason,
                "code": code,
            }
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - of http.server

    def _body(self) -> Any:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not data or self.command == "DELETE":  # options, which nothing here depends on
            return None
        return object_of(data) if data.startswith(MAGIC) else json.loads(data)

    def _answer(self, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Object]:
        if (found := discovered(path)) is not None:
            return 200, found
        version, resource, namespace, name = _placed(path)
        if not name and self.command == "GET":
            return 200, self._listed(version, resource, namespace, query)
        if not name:  # POST
            name = body["metadata"]["name"]
            if (version, resource, namespace, name) in self.cluster.objects:
                raise ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists')
            return 201, self.cluster.put((version, resource, namespace, name), body)
        return self._one((version, resource, namespace, name), body)

    def _one(self, key: Key, body: Any) -> tuple[int, Object]:
        apply = "apply-patch" in self.headers.get("Content-Type", "")
        there = self.cluster.objects.get(key)
        if self.command == "PATCH" and apply:
            return 200 if there else 201, self.cluster.apply(key, body)
        if there is None:
            raise ApiError(404, "NotFound", f'{key[1]} "{key[3]}" not found')
        match self.command:
            case "PUT":
                return 200, self.cluster.put(key, body)
            case "PATCH":
                return 200, self.cluster.put(key, patched(there, body))
            case "DELETE":
                self.cluster.applied.pop(key, None)
                return 200, self.cluster.objects.pop(key)
            case _:
                return 200, there

    def _listed(
        self, version: str, resource: str, namespace: str, query: Mapping[str, str]
    ) -> Object:
        wanted = dict(
            part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part
        )
        items = [
            each
            for key, each in self.cluster.objects.items()
            if key[:3] == (version, resource, namespace)
            and wanted.items() <= each["metadata"].get("labels", {}).items()
        ]
        kind = KINDS[version][resource] + "List"
        meta = {"resourceVersion": str(self.cluster.version)}
        return {"kind": kind, "apiVersion": version, "metadata": meta, "items": items}


def discovered(path: str) -> Object | None:
    """What the server says of itself; None: `path` is an object's."""
    groups = sorted({version.rpartition("/")[0] for version in KINDS} - {""})
    match [part for part in path.split("/") if part]:
        case ["openapi", "v3", *rest]:
            return _described("/".join(rest))
        case ["version"]:
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(group) for group in groups],
            }
        case ["api", "v1"]:
            return _resources("v1")
        case ["apis", group, version] if f"{group}/{version}" in KINDS:
            return _resources(f"{group}/{version}")
    return None


def _group(name: str) -> Object:
    versions = [
        {"groupVersion": each, "version": each.rpartition("/")[2]}
        for each in KINDS
        if each.rpartition("/")[0] == name
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(version: str) -> Object:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    resources = [
        {
            "name": name,
            "singularName": kind.lower(),
            "kind": kind,
            "namespaced": name not in OF_THE_CLUSTER,
            "verbs": verbs,
        }
        for name, kind in KINDS[version].items()
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


def _described(path: str) -> Object:
    """As much of OpenAPI as tells clients that fields are validated here, not by them."""
    prefixes = {("apis/" if "/" in version else "api/") + version: version for version in KINDS}
    if not path:
        return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}"} for p in prefixes}}
    group, _, number = prefixes[path].rpartition("/")
    paths = {}
    for resource, kind in KINDS[prefixes[path]].items():
        means = {"group": group, "version": number, "kind": kind}
        asked = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
        within = "" if resource in OF_THE_CLUSTER else "namespaces/{namespace}/"
        paths[f"/{path}/{within}{resource}/{{name}}"] = {
            "patch": {"parameters": asked, "x-kubernetes-group-version-kind": means}
        }
    return {"openapi": "3.0.0", "info": {"title": path, "version": "1"}, "paths": paths}


def _placed(path: str) -> Key:
    """Version, resource, namespace and name that a path means. Raises ApiError 404."""
    match [unquote(part) for part in path.split("/") if part]:
        case ["api", "v1", *rest]:
            version = "v1"
        case ["apis", group, number, *rest]:
            version = f"{group}/{number}"
        case _:
            rest, version = [], ""
    match rest:
        case [resource, *name] if resource in OF_THE_CLUSTER and len(name) <= 1:
            return version, resource, "", "".join(name)
        case ["namespaces", namespace, resource, *name] if len(name) <= 1:
            if resource in KINDS.get(version, {}):
                return version, resource, namespace, "".join(name)
    raise ApiError(404, "NotFound", f"the server could not find the requested resource {path}")


@contextmanager
def serving(cluster: Cluster) -> Iterator[str]:
    """The cluster behind an address, until left."""
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
