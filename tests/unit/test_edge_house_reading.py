"""What the edge shows of the configuration, as the services stand to it."""

from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from edge.house_reading import model_view, refused_configurations, restarts_due


def status(**services: models_pb2.Configuration) -> pb.Status:
    return pb.Status(
        configurations=[
            pb.Status.ConfigurationStatus(service=name, configuration=told)
            for name, told in services.items()
        ]
    )


def test_what_several_services_refuse_for_the_same_reason_is_said_once() -> None:
    both = models_pb2.Configuration(problem="x.yaml:3: expected YAML")
    one = models_pb2.Configuration(problem="x.yaml:3: expected YAML\nx.yaml:4: llm.a: missing")
    assert refused_configurations(status(llm=one, scheduler=both)) == [
        "The configuration is not taken as it stands: x.yaml:3: expected YAML",
        "The configuration is not taken as it stands: x.yaml:4: llm.a: missing",
    ]
    assert refused_configurations(status()) == []


def test_restarts_that_are_due_are_told_by_service() -> None:
    due = models_pb2.Configuration(restart_keys=["log_level", "llm.swap_dir"])
    wrong = models_pb2.Configuration(problem="no")
    assert restarts_due(status(llm=due, matte=wrong)) == {"llm": ["log_level", "llm.swap_dir"]}


def test_a_model_that_is_stale_or_removed_says_so() -> None:
    known = pb.Status.ModelStatus()
    shown = model_view(models_pb2.Model(key="m", stale=True), known)
    assert (shown.stale, shown.removed) == (True, False)
    shown = model_view(models_pb2.Model(key="m", removed=True), known)
    assert (shown.stale, shown.removed) == (False, True)
