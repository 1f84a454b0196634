"""What the model services have told, as they told it: for listings, and to know who hosts what."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from chassis import log
from cohabit.models.v1 import models_pb2
from services.scheduler.clients import (
    Changed,
    Configured,
    Everything,
    PermitMoved,
    Removed,
    Report,
    Worker,
)


class Told:
    """Every model of every service; the messages are kept true between reports."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        self.workers: Mapping[str, Worker] = {worker.name: worker for worker in workers}
        self._models: dict[str, dict[str, models_pb2.Model]] = {}
        self._left_out: dict[str, dict[str, models_pb2.Model]] = {}
        """Models that another service has, too, and had first."""
        self.configurations: dict[str, models_pb2.Configuration] = {}
        """How each service stands to the configuration's files."""

    def of(self, worker: str) -> Collection[str]:
        """The models of one service."""
        return self._models.get(worker, {}).keys()

    def models(self, silent: Collection[str]) -> list[models_pb2.Model]:
        """The models of every service that is not silent, ordered by key."""
        answering = [models for name, models in self._models.items() if name not in silent]
        merged = {key: model for models in answering for key, model in models.items()}
        return [merged[key] for key in sorted(merged)]

    def hosts(self) -> dict[str, str]:
        """Every model with the service that hosts it, ordered by key."""
        found = {key: name for name, models in self._models.items() for key in models}
        return dict(sorted(found.items()))

    def worker_of(self, key: str) -> Worker | None:
        """The service that hosts a model."""
        for name, models in self._models.items():
            if key in models:
                return self.workers[name]
        return None

    def holder_of(self, key: str) -> str:
        """Under what name the broker lends to a model."""
        worker = self.worker_of(key)
        return f"{worker.name if worker else 'scheduler'}/{key}"

    def own(self, worker: str, report: Report) -> Report | None:
        """What of a report counts: a model that another service had first is left out."""
        out = self._left_out.setdefault(worker, {})
        match report:
            case Everything():
                out.clear()
                own = [m for m in report.models if not self._is_anothers(m, worker)]
                return replace(report, models=tuple(own))
            case Changed():
                return None if self._is_anothers(report.model, worker) else report
            case Removed():
                out.pop(report.key, None)
                return report if report.key in self.of(worker) else None
        return report

    def heirs(self) -> list[tuple[str, models_pb2.Model]]:
        """Models left out whose first service has them no more, each with its own."""
        taken = {key for models in self._models.values() for key in models}
        return [
            (worker, out.pop(key))
            for worker, out in self._left_out.items()
            for key in out.keys() - taken
        ]

    def _is_anothers(self, model: models_pb2.Model, worker: str) -> bool:
        key, out = model.key, self._left_out[worker]
        found = any(key in models for name, models in self._models.items() if name != worker)
        if found and key not in out:
            log.get().warning("model has two services", model=key, left_out=worker)
        if found:
            out[key] = model
        return found

    def take(self, worker: str, report: Report) -> None:
        """Keep what a service reports."""
        models = self._models.setdefault(worker, {})
        match report:
            case Everything():
                self.configurations[worker] = report.configuration
                models.clear()
                models.update({model.key: _signed(model, worker) for model in report.models})
            case Changed():
                models[report.model.key] = _signed(report.model, worker)
            case Removed():
                models.pop(report.key, None)
            case Configured():
                self.configurations[worker] = report.configuration
            case PermitMoved():
                _note_permit(models.get(report.model), report)


def _signed(model: models_pb2.Model, worker: str) -> models_pb2.Model:
    """With the service that hosts it: its own report does not say."""
    model.service = worker
    return model


def _note_permit(model: models_pb2.Model | None, moved: PermitMoved) -> None:
    name = moved.permit_id
    for instance in model.instances if model is not None else ():
        if instance.instance_id != moved.instance_id:
            continue
        if moved.started and name not in instance.running_permit_ids:
            instance.running_permit_ids.append(name)
        elif not moved.started and name in instance.running_permit_ids:
            instance.running_permit_ids.remove(name)
