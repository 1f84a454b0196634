"""Kubernetes' schemas, strictly: no field that they do not know.

The library reads a megabyte for every object that it is asked about; here once.
"""

import functools
from typing import Any

from kubernetes_validate import utils

Object = dict[str, Any]

OLDEST, NEWEST = "1.27.0", "1.37.0"
"""Of the versions of Kubernetes that the chart is for."""

FOREIGN = frozenset({"Certificate", "HTTPRoute", "PrometheusRule", "ServiceMonitor"})
"""Kinds of other people's definitions, whose schemas are not to be had."""

utils.schema_contents = functools.cache(utils.schema_contents)


def complaint(each: Object, version: str = NEWEST) -> str:
    """What is wrong with an object; empty: nothing."""
    try:
        utils.validate(each, version, strict=True)
    except utils.SchemaNotFoundError:
        return "" if each["kind"] in FOREIGN else f"{each['kind']}: there is no such kind"
    except utils.ValidationError as error:
        path = ".".join(str(part) for part in error.path)
        return f"{each['kind']} {each['metadata']['name']}: {path}: {error.message}"
    return ""
