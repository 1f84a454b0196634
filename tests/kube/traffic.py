"""What NetworkPolicies let through between the pods of a house.

Of the rules of NetworkPolicy v1 those that the chart uses: peers by podSelector in one's own
namespace, and ports with or without an end. Once a policy names a pod for a direction, what no
policy allows there is shut; a connection needs both ends' leave.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tests.kube.rules import pod_of, selects
from tests.kube.schemas import Object


def labels_of(workload: Object) -> dict[str, str]:
    """Of the pods of a workload."""
    result: dict[str, str] = pod_of(workload)["metadata"]["labels"]
    return result


def may_dial(objects: list[Object], caller: Object, called: Object, port: int) -> bool:
    """Whether the pods of one workload reach a port of the pods of another."""
    source, target = labels_of(caller), labels_of(called)
    leaves = _allowed(objects, "Egress", source, target, port)
    return leaves and _allowed(objects, "Ingress", target, source, port)


def stranger_may_dial(
    objects: list[Object],
    called: Object,
    port: int,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Whether a pod that is none of the house does, one with these labels."""
    return _allowed(objects, "Ingress", labels_of(called), dict(labels), port)


def _allowed(
    objects: list[Object], direction: str, own: dict[str, str], other: dict[str, str], port: int
) -> bool:
    policies = [
        each["spec"]
        for each in objects
        if each["kind"] == "NetworkPolicy"
        and direction in each["spec"]["policyTypes"]
        and selects(each["spec"]["podSelector"]["matchLabels"], own)
    ]
    if not policies:
        return True
    rules = [rule for spec in policies for rule in spec.get(direction.lower(), ())]
    peers = "to" if direction == "Egress" else "from"
    return any(_is_peer(rule, peers, other) and _has_port(rule, port) for rule in rules)


def _is_peer(rule: Object, peers: str, labels: dict[str, str]) -> bool:
    """No peers at all mean everybody; addresses are those outside of the cluster."""
    if peers not in rule:
        return True
    return any(
        selects(peer["podSelector"]["matchLabels"], labels)
        for peer in rule[peers]
        if "podSelector" in peer and "namespaceSelector" not in peer
    )


def _has_port(rule: Object, port: int) -> bool:
    if "ports" not in rule:
        return True
    return any(
        each["protocol"] == "TCP" and each["port"] <= port <= each.get("endPort", each["port"])
        for each in rule["ports"]
    )
