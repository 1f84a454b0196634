"""Which model a name means, as the scheduler knows them: the model, or one of a family."""

from chassis.errors import Fault, Reason
from cohabit.scheduler.v1 import scheduler_pb2 as pb

DIFFUSION = "diffusion"
MATTE = "matte"


def find(status: pb.Status, name: str, service: str, param: str) -> str:
    """The key of the model of that service which `name` means; an empty one: the first there is.

    Faults: model_not_found; invalid_request for a model of another service; service_unavailable
    while it cannot be told, because not every model service has been heard.
    """
    named = [m for m in status.models if not name or name in (m.model_key, m.family)]
    fitting = [model.model_key for model in named if model.service == service]
    if name in fitting:
        return name
    if fitting:
        return min(fitting)
    if name and named:
        raise Fault(
            Reason.INVALID_REQUEST,
            f"`{param}`: '{name}' is a model of the {named[0].service} service; this needs one of "
            f"the {service} service.",
            metadata={"param": param},
        )
    if not status.reconciled or service in status.unreachable_workers:
        message = f"The {service} service has not reported its models yet; try again shortly."
        raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
    what = f"no model '{name}'" if name else f"no model of the {service} service"
    raise Fault(
        Reason.MODEL_NOT_FOUND,
        f"There is {what} here; the list of models says which there are.",
        metadata={"param": param},
    )
