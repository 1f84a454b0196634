"""What model services report, in the words of the scheduler's core."""

from cohabit.models.v1 import models_pb2
from services.scheduler.clients import facts_of


def test_optional_memory_counts_where_it_was_granted() -> None:
    extras = [
        models_pb2.Extra(name="draft", mib=40, lease_id="l1"),
        models_pb2.Extra(name="more", mib=7, lease_id="l2"),
        models_pb2.Extra(name="denied", mib=900, why="There is no room."),
    ]
    ready = models_pb2.MODEL_STATE_READY
    instances = [
        models_pb2.Instance(instance_id="a", state=ready, extras=extras),
        models_pb2.Instance(instance_id="b", state=ready),
    ]
    facts = facts_of(models_pb2.Model(key="m", state=ready, instances=instances))
    assert [one.extra_mib for one in facts.instances] == [47, 0]
