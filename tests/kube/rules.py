"""What a cluster would only tell at run time: rules over a rendered set of objects.

Each yields a sentence for everything that is wrong. Schemas are not asked here: they know types,
not what refers to what, nor which number is a port.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

from tests.kube.chart import configuration, workloads
from tests.kube.schemas import Object

Rule = Callable[[list[Object], frozenset[tuple[str, str]]], Iterator[str]]
"""Told the objects, and kinds and names of what is there besides."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|[kMGTPE]i?|)")
_FACTORS: dict[str, Decimal] = {"": Decimal(1), "m": Decimal("0.001")} | {
    unit + suffix: Decimal(base) ** power
    for power, unit in enumerate("kMGTPE", start=1)
    for base, suffix in ((1000, ""), (1024, "i"))
}
_LONGEST_STATEFUL = 52
"""The label of its revisions adds eleven characters."""
_LONGEST_PORT = 15


def title(each: Object) -> str:
    """How an object is named in a sentence."""
    return f"{each['kind']} {each['metadata']['name']}"


def pod_of(workload: Object) -> Object:
    """The pod that a workload makes."""
    result: Object = workload["spec"]["template"]
    return result


def containers(workload: Object) -> Iterator[Object]:
    """Of its pods."""
    spec = pod_of(workload)["spec"]
    yield from spec.get("initContainers", ())
    yield from spec["containers"]


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether labels are matched by a selector of equalities."""
    return bool(selector) and selector.items() <= labels.items()


def names(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Names and labels are such as a server takes, and each is there once."""
    seen = set()
    for each in objects:
        name = each["metadata"]["name"]
        longest = _LONGEST_STATEFUL if each["kind"] == "StatefulSet" else 63
        if not _LABEL.fullmatch(name) or len(name) > longest:
            yield f"{title(each)}: no name of at most {longest} characters"
        if (each["kind"], name) in seen:
            yield f"{title(each)}: twice"
        seen.add((each["kind"], name))
        for key, value in each["metadata"].get("labels", {}).items():
            if not _VALUE.fullmatch(value):
                yield f"{title(each)}: label {key}: {value!r}"


def selectors(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Each workload selects its own pods and no other's."""
    made = [each for each in workloads(objects) if each["kind"] != "Job"]
    for each in made:
        selector = each["spec"]["selector"]["matchLabels"]
        chosen = [w for w in workloads(objects) if selects(selector, _labels(w))]
        if chosen != [each]:
            yield f"{title(each)}: selects the pods of {[title(w) for w in chosen]}"


def services(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """A Service leads to one workload's pods, and to ports that they have."""
    for each in (e for e in objects if e["kind"] == "Service"):
        chosen = [w for w in workloads(objects) if selects(each["spec"]["selector"], _labels(w))]
        if len(chosen) != 1:
            yield f"{title(each)}: leads to {[title(w) for w in chosen]}"
            continue
        ports = [p for c in containers(chosen[0]) for p in c.get("ports", ())]
        known = {p["name"] for p in ports} | {p["containerPort"] for p in ports}
        for port in each["spec"]["ports"]:
            if port.get("targetPort", port["port"]) not in known:
                yield f"{title(each)}: port {port['port']} leads nowhere"
            if not 0 < port["port"] < 65536:
                yield f"{title(each)}: {port['port']} is no port"


def ports(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """A pod's ports are its containers' own, and those that the configuration binds."""
    bound = _bound(configuration(objects))
    for workload in workloads(objects):
        declared = [p for c in containers(workload) for p in c.get("ports", ())]
        for what in ("name", "containerPort"):
            values = [port[what] for port in declared]
            if len(values) != len(set(values)):
                yield f"{title(workload)}: a {what} is there twice"
        for container in containers(workload):
            for port in container.get("ports", ()):
                if len(port["name"]) > _LONGEST_PORT:
                    yield f"{title(workload)}: {port['name']} is too long for a port"
                wanted = bound.get(container["name"])
                if wanted is not None and port["name"] in _MAIN and port["containerPort"] != wanted:
                    yield f"{title(workload)}: {container['name']} binds {wanted}"


_MAIN = {"grpc", "grpc-simulated", "http"}
"""The ports on which a service of the house is dialled."""


def probes(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """What runs for good is probed, at a port of its own container."""
    for workload in workloads(objects):
        for container in pod_of(workload)["spec"]["containers"]:
            known = {p["containerPort"] for p in container.get("ports", ())}
            named = {p["name"] for p in container.get("ports", ())}
            for name in ("startupProbe", "readinessProbe", "livenessProbe"):
                where = f"{title(workload)}: {container['name']}: {name}"
                if (probe := container.get(name)) is None:
                    if workload["kind"] != "Job":
                        yield f"{where} is missing"
                elif _probed(probe) not in known | named:
                    yield f"{where} asks at {_probed(probe)}, where nothing is"


def quantities(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Every quantity can be read, and what is asked for is within its limit."""
    for workload in workloads(objects):
        for container in containers(workload):
            resources = container["resources"]
            requests, limits = resources.get("requests", {}), resources.get("limits", {})
            for name, value in (*requests.items(), *limits.items()):
                if _amount(value) is None:
                    yield f"{title(workload)}: {name}: {value} is no quantity"
                elif "/" in name and _amount(value) != int(_amount(value) or 0):
                    yield f"{title(workload)}: {name}: devices are whole"
            for name in requests.keys() & limits.keys():
                if (_amount(requests[name]) or 0) > (_amount(limits[name]) or 0):
                    yield f"{title(workload)}: {name}: more is asked for than its limit"
    for each in (e for e in objects if e["kind"] == "PersistentVolumeClaim"):
        if not _amount(each["spec"]["resources"]["requests"]["storage"]):
            yield f"{title(each)}: its size is no quantity"


def references(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Everything that is named is there."""
    there = {(e["kind"], e["metadata"]["name"]) for e in objects} | outside
    for each in objects:
        for kind, name in _named_by(each):
            if (kind, name) not in there:
                yield f"{title(each)}: there is no {kind} {name}"


def mounts(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """Volumes are mounted, mounts have volumes, and none is a subPath: those are never updated."""
    for workload in workloads(objects):
        volumes = {v["name"] for v in pod_of(workload)["spec"].get("volumes", ())}
        used = set()
        for container in containers(workload):
            mounted = container.get("volumeMounts", ())
            used |= {m["name"] for m in mounted}
            paths = [m["mountPath"] for m in mounted]
            if len(paths) != len(set(paths)):
                yield f"{title(workload)}: two mounts at one path"
            if any("subPath" in m for m in mounted):
                yield f"{title(workload)}: a subPath is never updated"
        for name in sorted(used ^ volumes):
            yield f"{title(workload)}: volume {name} is {'missing' if name in used else 'unused'}"


def targets(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """What watches over pods finds some."""
    there = {(e["kind"], e["metadata"]["name"]) for e in objects}
    for each in objects:
        if each["kind"] == "HorizontalPodAutoscaler":
            target = each["spec"]["scaleTargetRef"]
            if (target["kind"], target["name"]) not in there:
                yield f"{title(each)}: scales nothing"
            scaled = [e for e in objects if e["metadata"]["name"] == target["name"]]
            if any("replicas" in e["spec"] for e in scaled if e["kind"] == target["kind"]):
                yield f"{title(each)}: every upgrade would undo what it does"
        if each["kind"] in {"PodDisruptionBudget", "NetworkPolicy"}:
            field = "selector" if each["kind"] == "PodDisruptionBudget" else "podSelector"
            selector = each["spec"][field]["matchLabels"]
            if not any(selects(selector, _labels(w)) for w in workloads(objects)):
                yield f"{title(each)}: is about no pod"


def hardening(objects: list[Object], outside: frozenset[tuple[str, str]]) -> Iterator[str]:
    """No pod may more than it must."""
    for workload in workloads(objects):
        spec = pod_of(workload)["spec"]
        own = spec["securityContext"]
        if not own.get("runAsNonRoot") or own.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{title(workload)}: may be root, or call anything"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{title(workload)}: has a token for the cluster"
        if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{title(workload)}: is in a namespace of the host"
        for container in containers(workload):
            context = container["securityContext"]
            if (
                not context.get("readOnlyRootFilesystem")
                or context.get("allowPrivilegeEscalation") is not False
                or context.get("capabilities") != {"drop": ["ALL"]}
                or context.get("privileged")
            ):
                yield f"{title(workload)}: {container['name']} is not shut in"


RULES: tuple[Rule, ...] = (
    names,
    selectors,
    services,
    ports,
    probes,
    quantities,
    references,
    mounts,
    targets,
    hardening,
)


def broken(
    objects: list[Object],
    outside: frozenset[tuple[str, str]] = frozenset(),
    rules: Iterable[Rule] = RULES,
) -> list[str]:
    """All that is wrong."""
    return [sentence for rule in rules for sentence in rule(objects, outside)]


def _labels(workload: Object) -> dict[str, str]:
    result: dict[str, str] = pod_of(workload)["metadata"]["labels"]
    return result


def _bound(config: dict[str, Any]) -> dict[str, int]:
    listens = {**config["listen"], "edge": config["edge"]["listen"]}
    return {service: int(address.rpartition(":")[2]) for service, address in listens.items()}


def _probed(probe: Object) -> int | str:
    """The port that a probe asks at."""
    if "grpc" in probe:
        return int(probe["grpc"]["port"])
    if "httpGet" in probe:
        port: int | str = probe["httpGet"]["port"]
        return port
    return int(probe["exec"]["command"][-1].rpartition(":")[2])


def _amount(value: object) -> Decimal | None:
    found = _QUANTITY.fullmatch(str(value))
    return Decimal(found[1]) * _FACTORS[found[2]] if found else None


def _named_by(each: Object) -> Iterator[tuple[str, str]]:
    """Kind and name of everything that an object needs."""
    if each["kind"] == "Ingress":
        for rule in each["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                yield "Service", path["backend"]["service"]["name"]
        for tls in each["spec"].get("tls", ()):
            yield "Secret", tls["secretName"]
    if each["kind"] == "StatefulSet":
        yield "Service", each["spec"]["serviceName"]
    if each["kind"] not in {"Deployment", "StatefulSet", "Job"}:
        return
    spec = pod_of(each)["spec"]
    yield "ServiceAccount", spec["serviceAccountName"]
    for volume in spec.get("volumes", ()):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "secret" in volume and not volume["secret"].get("optional"):
            yield "Secret", volume["secret"]["secretName"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for container in containers(each):
        for variable in container.get("env", ()):
            if "valueFrom" in variable:
                yield "Secret", variable["valueFrom"]["secretKeyRef"]["name"]
