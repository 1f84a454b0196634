"""Runs one step of a job: its calls to other services, then its outcomes as files.

What a step may rely on lies in the job's folder: the pictures it came with, and what earlier steps
made. No permit is held when another service is called. A step that is cancelled in the middle
leaves at most files that no job refers to.
"""

import asyncio
from dataclasses import dataclass, replace

from chassis.errors import Fault, Reason
from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from cohabit.matte.v1 import matte_pb2
from imaging.decode import probe
from imaging.values import Encoding, Format
from services.jobs import requests
from services.jobs.checks import BOUNDS
from services.jobs.clients import Calls, Report
from services.jobs.core.life import outcome_of
from services.jobs.core.values import Job, JobKind, Outcome, Role, Step, StepKind
from services.jobs.files import Files
from services.jobs.models import DIFFUSION, MATTE, find
from services.jobs.pictures import Made, cut, encoded, media_as, shrunk
from services.jobs.spec import backdrop_of, cutout_of, output_of, picture_of


@dataclass(frozen=True, slots=True)
class Task:
    """One step to run."""

    job: Job
    position: int
    spec: pb.JobSpec
    report: Report

    @property
    def step(self) -> Step:
        """What the job's plan says of it."""
        return self.job.steps[self.position]


class Runner:
    """Runs steps, any number side by side; holds nothing between them."""

    def __init__(self, calls: Calls, files: Files, default: Encoding, matte_model: str) -> None:
        self._calls, self._files = calls, files
        self._default, self._matte_model = default, matte_model

    async def run(
        self, job: Job, position: int, spec: bytes, report: Report
    ) -> tuple[Outcome, ...]:
        """The step's outcomes, which lie in the job's folder. Raises Fault."""
        task = Task(job, position, pb.JobSpec.FromString(spec), report)
        match task.step.kind:
            case StepKind.GENERATE:
                made = await self._generate(task)
            case StepKind.MATTE:
                made = await self._matte(task)
            case StepKind.GENERATE_BACKDROP:
                made = await self._generate_backdrop(task)
            case StepKind.COMPOSITE:
                made = await self._composite(task)
        return await asyncio.to_thread(self._keep, task, made)

    async def _generate(self, task: Task) -> list[Made]:
        picture = picture_of(task.spec)
        assert picture is not None  # noqa: S101 - the plan has this step for such specs alone
        whole = task.job.kind is JobKind.IMAGE_GENERATION
        encoding = self._encoding(task) if whole else Encoding(Format.PNM)
        role = Role.IMAGE if whole else Role.SOURCE
        start = await self._given(task, "init_image")
        image = await self._paint(task, picture, encoding, role, start)
        made = [replace(image, kept=whole)]
        if not whole and task.spec.foreground_generation.return_source:
            made.append(await self._written(image, self._encoding(task)))
        return made

    async def _matte(self, task: Task) -> list[Made]:
        cutout = cutout_of(task.spec)
        assert cutout is not None  # noqa: S101 - as above
        image = await self._subject(task)
        if (generated := backdrop_of(task.spec)) is not None:
            return await self._matte_for_backdrop(task, cutout, generated, image)
        transparent = cutout.WhichOneof("backdrop") is None
        model = await self._matte_key(task)
        encoding = self._encoding(task, alpha=transparent)
        request = requests.remove_background(cutout, model, image, encoding)
        if backdrop := await self._given(task, "backdrop"):
            request.backdrop.image.data = backdrop
        answer = await self._calls.remove_background(request, task.job.owner, task.report)
        role = Role.CUTOUT if transparent else Role.IMAGE
        return cut(answer, role, _seed(task), kept=True)

    async def _matte_for_backdrop(
        self,
        task: Task,
        cutout: pb.CutoutOptions,
        generated: pb.CutoutOptions.GeneratedBackdrop,
        image: bytes,
    ) -> list[Made]:
        """The cutout as the next steps want it, and what is kept besides, written once more."""
        size = await asyncio.to_thread(probe, image, BOUNDS, "image")
        encoding = requests.between(size.width_px, size.height_px)
        model = await self._matte_key(task)
        request = requests.remove_background(cutout, model, image, encoding)
        starts_from_old = generated.background_strength > 0
        request.return_background = cutout.return_background or starts_from_old
        answer = await self._calls.remove_background(request, task.job.owner, task.report)
        kept: list[Made] = []
        for made in cut(answer, Role.CUTOUT, _seed(task), kept=False):
            if made.role is Role.CUTOUT or (made.role is Role.BACKGROUND and starts_from_old):
                kept.append(made)
            if made.role is not Role.CUTOUT and _wanted(cutout, made.role):
                kept.append(await self._written(made, self._encoding(task)))
        return kept

    async def _generate_backdrop(self, task: Task) -> list[Made]:
        generated, subject = backdrop_of(task.spec), outcome_of(task.job, Role.CUTOUT, kept=False)
        assert generated is not None  # noqa: S101 - as above
        assert subject is not None  # noqa: S101 - the step before made it
        picture = pb.Picture()
        picture.CopyFrom(generated.picture)
        picture.width_px = picture.width_px or subject.width_px
        picture.height_px = picture.height_px or subject.height_px
        start = b""
        if generated.background_strength > 0:
            picture.strength = generated.background_strength
            start = await self._earlier(task, Role.BACKGROUND)
        try:
            image = await self._paint(task, picture, Encoding(Format.PNM), Role.BACKDROP, start)
        except Fault as fault:
            # A photograph is often larger than any model paints: what is put behind it is scaled.
            if fault.reason is not Reason.IMAGE_TOO_LARGE or not shrunk(picture, fault):
                raise
            image = await self._paint(task, picture, Encoding(Format.PNM), Role.BACKDROP, start)
        return [image, await self._written(image, self._encoding(task))]

    async def _composite(self, task: Task) -> list[Made]:
        request = matte_pb2.CompositeRequest(
            foreground=common_pb2.Media(data=await self._earlier(task, Role.CUTOUT)),
            output=requests.cut_output(self._encoding(task)),
        )
        request.backdrop.image.data = await self._earlier(task, Role.BACKDROP)
        task.report(0.0, True, "")
        answer = await self._calls.composite(request)
        return [media_as(Role.IMAGE, answer.image, answer.width_px, answer.height_px, _seed(task))]

    async def _paint(
        self, task: Task, picture: pb.Picture, encoding: Encoding, role: Role, start: bytes
    ) -> Made:
        status = await self._calls.status()
        model = find(status, picture.model, DIFFUSION, "picture.model")
        request = requests.generate(picture, model, task.step.index, encoding)
        if start:
            request.init_image.data = start
            size = await asyncio.to_thread(probe, start, BOUNDS, "init_image")
            request.width_px = request.width_px or size.width_px
            request.height_px = request.height_px or size.height_px
        image = await self._calls.generate(request, task.job.owner, task.report)
        made = media_as(role, image.image, image.width_px, image.height_px, image.seed)
        return replace(made, kept=False)

    async def _matte_key(self, task: Task) -> str:
        name = task.step.model or self._matte_model
        return find(await self._calls.status(), name, MATTE, "cutout.model")

    async def _subject(self, task: Task) -> bytes:
        if task.job.kind is JobKind.FOREGROUND_GENERATION:
            return await self._earlier(task, Role.SOURCE)
        return await self._given(task, "image")

    async def _given(self, task: Task, field: str) -> bytes:
        """A picture that came with the job; empty: none did."""
        if all(given.name != field for given in task.job.inputs):
            return b""
        return await self._read(task, field)

    async def _earlier(self, task: Task, role: Role) -> bytes:
        """A picture that an earlier step made for this one."""
        made = outcome_of(task.job, role, kept=False)
        assert made is not None  # noqa: S101 - the plan has that step before this one
        return await self._read(task, made.name)

    async def _read(self, task: Task, name: str) -> bytes:
        try:
            return await asyncio.to_thread(self._files.read, task.job.job_id, name)
        except OSError as error:
            raise Fault(
                Reason.INTERNAL,
                f"A file of this job cannot be read any more ({error.strerror}); submit it again.",
            ) from error

    async def _written(self, made: Made, encoding: Encoding) -> Made:
        """A picture between steps as the result that is kept of it."""
        return await asyncio.to_thread(encoded, made, encoding)

    def _encoding(self, task: Task, *, alpha: bool = False) -> Encoding:
        return requests.encoding_of(output_of(task.spec), self._default, alpha=alpha)

    def _keep(self, task: Task, made: list[Made]) -> tuple[Outcome, ...]:
        # The attempt is part of the name: a step that is run again writes over nothing.
        prefix = f"{task.position}-{task.step.attempts}"
        kept: list[Outcome] = []
        for one in sorted(made, key=lambda one: (one.role, one.kept)):
            name = f"{prefix}-{one.role.name.lower()}{'' if one.kept else '-between'}"
            written = self._files.write(task.job.job_id, name, one.data)
            kept.append(
                Outcome(
                    name=name,
                    role=one.role,
                    index=task.step.index,
                    kept=one.kept,
                    mime_type=one.mime_type,
                    size_bytes=written.size_bytes,
                    sha256=written.sha256,
                    width_px=one.width_px,
                    height_px=one.height_px,
                    seed=one.seed,
                )
            )
        return tuple(kept)


def _seed(task: Task) -> int | None:
    """Of the generated picture that the subject comes from."""
    source = outcome_of(task.job, Role.SOURCE, kept=False)
    return None if source is None else source.seed


def _wanted(cutout: pb.CutoutOptions, role: Role) -> bool:
    return cutout.return_matte if role is Role.MATTE else cutout.return_background
