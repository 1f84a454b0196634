"""Every set of values renders to objects that a cluster takes and that fit together."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kube.chart import CHART, MATRIX, OUTSIDE, helm, kept, of_matrix, rendered, workloads
from tests.kube.rules import broken, containers, pod_of, selectors, services
from tests.kube.schemas import NEWEST, OLDEST, Object, complaint


@pytest.mark.parametrize("name", MATRIX)
def test_what_is_rendered_fits_together(name: str) -> None:
    assert broken(of_matrix(name), OUTSIDE) == []


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", MATRIX)
def test_every_object_is_what_its_schema_says(name: str, version: str) -> None:
    assert [said for each in of_matrix(name) if (said := complaint(each, version))] == []


def test_the_chart_passes_lint(tmp_path: Path) -> None:
    done = helm("lint", "--strict", str(CHART), home=tmp_path)
    assert not done.returncode, done.stdout


def test_a_template_that_lint_would_refuse_is_refused(tmp_path: Path) -> None:
    chart = shutil.copytree(CHART, tmp_path / "cohabit")
    (chart / "templates" / "broken.yaml").write_text("kind: {{ .Values.nothing.there }}\n")
    assert helm("lint", "--strict", str(chart), home=tmp_path).returncode


def test_a_long_release_name_makes_names_that_fit() -> None:
    objects = rendered(
        MATRIX["whole"], release="a-release-with-a-name-as-long-as-helm-would-take-it"
    )
    assert broken(objects, OUTSIDE) == []


def test_two_houses_in_one_namespace_share_nothing() -> None:
    first, second = rendered({}, release="one"), rendered({}, release="two")
    names = [{(e["kind"], e["metadata"]["name"]) for e in objects} for objects in (first, second)]
    assert not names[0] & names[1]
    assert list(selectors([*first, *second], OUTSIDE)) == []
    assert list(services([*first, *second], OUTSIDE)) == []


def _edge(objects: list[Object]) -> Object:
    return kept(objects, "Deployment", "cohabit-edge")


def _edge_container(objects: list[Object]) -> Object:
    [container] = containers(_edge(objects))
    return container


Mutation = Callable[[list[Object]], object]

MUTATIONS: dict[str, Mutation] = {
    "no name": lambda o: _edge(o)["metadata"].update(name="Cohabit_Edge"),
    "twice": lambda o: o.append(copy.deepcopy(_edge(o))),
    "selects the pods": lambda o: _edge(o)["spec"]["selector"]["matchLabels"].pop(
        "app.kubernetes.io/component"
    ),
    "leads to": lambda o: kept(o, "Service", "cohabit-edge")["spec"]["selector"].update(x="y"),
    "leads nowhere": lambda o: kept(o, "Service", "cohabit-edge")["spec"]["ports"][0].update(
        targetPort="grpc"
    ),
    "binds 8080": lambda o: _edge_container(o)["ports"][0].update(containerPort=8081),
    "is missing": lambda o: _edge_container(o).pop("livenessProbe"),
    "where nothing is": lambda o: _edge_container(o)["readinessProbe"].update(
        httpGet={"path": "/readyz", "port": 8081}
    ),
    "is no quantity": lambda o: _edge_container(o)["resources"]["limits"].update(memory="2GB"),
    "more is asked for": lambda o: _edge_container(o)["resources"]["requests"].update(memory="3Gi"),
    "there is no ConfigMap": lambda o: pod_of(_edge(o))["spec"]["volumes"][0].update(
        configMap={"name": "elsewhere"}
    ),
    "unused": lambda o: _edge_container(o)["volumeMounts"].pop(),
    "subPath": lambda o: _edge_container(o)["volumeMounts"][0].update(subPath="cohabit.yaml"),
    "is about no pod": lambda o: kept(o, "PodDisruptionBudget", "cohabit-edge")["spec"]["selector"][
        "matchLabels"
    ].update({"app.kubernetes.io/component": "ledge"}),
    "may be root": lambda o: pod_of(_edge(o))["spec"]["securityContext"].pop("runAsNonRoot"),
    "has a token": lambda o: pod_of(_edge(o))["spec"].pop("automountServiceAccountToken"),
    "is not shut in": lambda o: _edge_container(o)["securityContext"].update(
        readOnlyRootFilesystem=False
    ),
}
"""What would be said, and a change of the default objects for which it must be."""


@pytest.mark.parametrize("said", MUTATIONS)
def test_the_rules_notice(said: str) -> None:
    objects = copy.deepcopy(of_matrix("default"))
    MUTATIONS[said](objects)
    assert [sentence for sentence in broken(objects, OUTSIDE) if said in sentence]


def test_an_autoscaled_edge_has_no_number_of_its_own() -> None:
    objects = copy.deepcopy(of_matrix("many-edges"))
    kept(objects, "Deployment", "house-edge")["spec"]["replicas"] = 2
    assert broken(objects, OUTSIDE) == [
        "HorizontalPodAutoscaler house-edge: every upgrade would undo what it does"
    ]


def test_only_the_edge_is_scaled() -> None:
    [scaler] = [e for e in of_matrix("many-edges") if e["kind"] == "HorizontalPodAutoscaler"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == "house-edge"
    others = [e for e in workloads(of_matrix("many-edges")) if e["kind"] != "Job"]
    assert {e["spec"].get("replicas") for e in others if e["metadata"]["name"] != "house-edge"} == {
        1
    }
