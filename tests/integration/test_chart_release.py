"""The real Helm installs, upgrades, rolls back and uninstalls, against a stand-in for a cluster."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.api import serving
from tests.kube.chart import CHART, MATRIX, OUTSIDE, Values, configuration, helm, kept
from tests.kube.cluster import Cluster
from tests.kube.rules import broken, pod_of
from tests.kube.schemas import Object

OTHERS = {"other-peoples-kinds"}
"""Sets with kinds that a cluster has only where somebody has put them there."""


class Release:
    """A cluster, and Helm that looks after one release in it."""

    def __init__(self, cluster: Cluster, url: str, home: Path) -> None:
        self.cluster, self._url, self._home = cluster, url, home

    def helm(self, *arguments: str) -> str:
        """Run Helm. Raises AssertionError with what it says when it refuses."""
        code, said = self.asked(*arguments)
        assert not code, said
        return said

    def asked(self, *arguments: str) -> tuple[int, str]:
        """Helm's exit status, and what it said."""
        done = helm(*arguments, f"--kube-apiserver={self._url}", "-n=house", home=self._home)
        return done.returncode, done.stdout + done.stderr

    def change(
        self, verb: str, values: Values, *further: str, chart: Path = CHART
    ) -> tuple[int, str]:
        """Install or upgrade with these values."""
        sets = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
        return self.asked(verb, "cohabit", str(chart), *sets, *further)

    def install(self, values: Values) -> None:
        """Install with these values."""
        code, said = self.change("install", values)
        assert not code, said

    def upgrade(self, values: Values) -> None:
        """Upgrade to these values."""
        code, said = self.change("upgrade", values, "--reset-values")
        assert not code, said

    def objects(self) -> list[Object]:
        """What there is, but for Helm's own records."""
        return [e for e in self.cluster.objects.values() if e.get("type") != "helm.sh/release.v1"]

    def pods(self) -> dict[str, Object]:
        """The pods that workloads make, by name of the workload."""
        kinds = ("Deployment", "StatefulSet")
        return {
            name: pod_of(each)
            for kind in kinds
            for name, each in self.cluster.of_kind(kind).items()
        }

    def models(self) -> set[str]:
        """Those of the language service, as its pods read them."""
        return set(configuration(self.objects())["llm"]["models"])


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    cluster = Cluster()
    with serving(cluster) as url:
        yield Release(cluster, url, tmp_path)


MORE: Values = {"config": {"llm": {"models": {"more": {"path": "m.gguf", "context_tokens": 512}}}}}


def settled(objects: list[Object]) -> list[Any]:
    """What objects say, without what a server counts."""
    return sorted(
        (e["kind"], e["metadata"]["name"], json.dumps(e.get("spec", e.get("data")), sort_keys=True))
        for e in objects
    )


@pytest.mark.parametrize("name", [each for each in MATRIX if each not in OTHERS])
def test_every_set_of_values_can_be_installed(release: Release, name: str) -> None:
    release.install(MATRIX[name])
    assert broken(release.objects(), OUTSIDE) == []


def test_kinds_that_the_cluster_does_not_know_are_said_before_anything_is_made(
    release: Release,
) -> None:
    code, said = release.change("install", MATRIX["other-peoples-kinds"])
    assert code
    assert "could not find the requested resource" in said
    assert release.objects() == []


def test_a_model_list_that_changes_is_in_place_and_rolls_nobody(release: Release) -> None:
    release.install({})
    before = release.pods()
    release.upgrade(MORE)
    assert release.models() == {"smollm2", "more"}
    assert release.pods() == before


def test_a_setting_that_changes_rolls_its_service_alone(release: Release) -> None:
    release.install({})
    before = release.pods()
    release.upgrade({"config": {"scheduler": {"permits": 8}}})
    after = release.pods()
    assert {name for name in after if after[name] != before[name]} == {"cohabit-scheduler"}


def test_a_rollback_brings_everything_back(release: Release) -> None:
    release.install({})
    before = settled(release.objects())
    release.upgrade({**MORE, "edge": {"replicas": 3}, "gpu": {"sharing": "whole"}})
    assert settled(release.objects()) != before
    release.helm("rollback", "cohabit", "1")
    assert settled(release.objects()) == before
    history = json.loads(release.helm("history", "cohabit", "--output=json"))
    assert [each["status"] for each in history] == ["superseded", "superseded", "deployed"]


def test_a_service_that_comes_and_goes_leaves_its_jobs(release: Release) -> None:
    release.install({})
    release.upgrade({"config": {"jobs": None}})
    assert "cohabit-jobs" not in release.pods()
    assert "cohabit-jobs" in release.cluster.of_kind("PersistentVolumeClaim")
    release.upgrade({})
    assert "cohabit-jobs" in release.pods()


def test_an_uninstall_leaves_the_volumes_and_an_install_takes_them_up_again(
    release: Release,
) -> None:
    release.install({})
    claims = release.cluster.of_kind("PersistentVolumeClaim")
    release.helm("uninstall", "cohabit")
    assert {each["kind"] for each in release.objects()} == {"PersistentVolumeClaim"}
    release.install({})
    again = release.cluster.of_kind("PersistentVolumeClaim")
    assert {n: c["metadata"]["uid"] for n, c in again.items()} == {
        n: c["metadata"]["uid"] for n, c in claims.items()
    }


def test_volumes_can_grow(release: Release) -> None:
    release.install({})
    release.upgrade({"storage": {"models": {"size": "200Gi"}}})
    claim = kept(release.objects(), "PersistentVolumeClaim", "cohabit-models")
    assert claim["spec"]["resources"]["requests"]["storage"] == "200Gi"


STEPS: list[Values] = [
    {},
    {"gpu": {"sharing": "whole"}, "nodeSelector": {"gpu": "yes"}},
    {
        "fetch": {"tokenSecret": "hub"},
        "gpu": {"sharing": "mps"},
        "edge": {"autoscaling": {"enabled": True}},
    },
    MATRIX["trusting-nobody"],
    MATRIX["simulated"],
    {"config": {"diffusion": {"models": {}}}, "networkPolicy": {"enabled": False}},
    MORE,
    {},
]


def test_from_any_house_to_the_next_nothing_immutable_changes(release: Release) -> None:
    release.install(STEPS[0])
    for values in STEPS[1:]:
        release.upgrade(values)
        assert broken(release.objects(), OUTSIDE) == []


def test_the_cluster_refuses_what_a_real_one_would(release: Release, tmp_path: Path) -> None:
    release.install({})
    code, said = release.change("upgrade", {"nameOverride": "other", "fullnameOverride": "cohabit"})
    assert code
    assert "field is immutable" in said


def test_an_object_that_the_schema_does_not_know_is_refused(
    release: Release, tmp_path: Path
) -> None:
    chart = tmp_path / "cohabit"
    _copy_with(chart, "serviceaccount.yaml", "automountServiceAccountToken", "automountToken")
    code, said = release.change("install", {}, chart=chart)
    assert code
    assert "automountToken" in said


def _copy_with(target: Path, template: str, old: str, new: str) -> None:
    shutil.copytree(CHART, target)
    file = target / "templates" / template
    file.write_text(file.read_text().replace(old, new))


def test_what_helm_shows_of_a_release_is_what_was_asked(release: Release) -> None:
    release.install(MORE)
    values = json.loads(release.helm("get", "values", "cohabit", "--output=json"))
    assert values == MORE
    assert "no API key yet" in release.helm("get", "notes", "cohabit")
