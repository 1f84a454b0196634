"""Kubernetes' protobuf: Helm sends its releases in it, which are Secrets, and kubectl namespaces.

A body is four bytes of magic and a `runtime.Unknown`, whose `raw` is the object. The fields that
stand here have the numbers of k8s.io/api; others are passed over.
"""

import base64
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

MAGIC = b"k8s\x00"

_FieldType = descriptor_pb2.FieldDescriptorProto
_STRING, _BYTES = _FieldType.TYPE_STRING, _FieldType.TYPE_BYTES
_MESSAGES: dict[str, Sequence[tuple[str, int, Any, bool]]] = {
    "TypeMeta": [("apiVersion", 1, _STRING, False), ("kind", 2, _STRING, False)],
    "Unknown": [("typeMeta", 1, "TypeMeta", False), ("raw", 2, _BYTES, False)],
    "Label": [("key", 1, _STRING, False), ("value", 2, _STRING, False)],
    "Datum": [("key", 1, _STRING, False), ("value", 2, _BYTES, False)],
    "ObjectMeta": [("name", 1, _STRING, False), ("labels", 11, "Label", True)],
    "Secret": [
        ("metadata", 1, "ObjectMeta", False),
        ("data", 2, "Datum", True),
        ("type", 3, _STRING, False),
    ],
}
"""By message: name, number, type (or the message's name) and whether repeated, of each field."""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="kube.proto", package="kube", syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind, repeated in fields:
            label = _FieldType.LABEL_REPEATED if repeated else _FieldType.LABEL_OPTIONAL
            field = described.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _FieldType.TYPE_MESSAGE, f".kube.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kube.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()


def object_of(body: bytes) -> dict[str, Any]:
    """A Secret or a namespace as JSON has it. Raises ValueError for other kinds."""
    unknown = _CLASSES["Unknown"].FromString(body.removeprefix(MAGIC))
    secret = _CLASSES["Secret"].FromString(unknown.raw)  # of a namespace: its metadata
    labels = {each.key: each.value for each in secret.metadata.labels}
    named = {"metadata": {"name": secret.metadata.name, "labels": labels}}
    if unknown.typeMeta.kind == "Namespace":
        return named
    if unknown.typeMeta.kind != "Secret":
        raise ValueError(f"expected a Secret or a Namespace, got a {unknown.typeMeta.kind}")
    return named | {
        "type": secret.type,
        "data": {each.key: base64.b64encode(each.value).decode() for each in secret.data},
    }
