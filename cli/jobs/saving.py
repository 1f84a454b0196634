"""Results of a job, written to files of a folder.

A transfer that breaks off goes on where it stopped; what arrived is held against its hash.
"""

import hashlib
from contextlib import aclosing
from pathlib import Path

from chassis.errors import Fault
from cli.console import Refused, error
from cli.jobs.page import not_there
from cli.new_file import check_free, new_file
from cli.reach import sentence
from cli.words import flat
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.jobs.calls import JobCalls
from edge.jobs.ranges import Span
from edge.jobs.reading import role_of

_ENDINGS = {"image/png": ".png", "image/webp": ".webp", "image/jpeg": ".jpg"}
_OTHER_ENDING = ".bin"


def name_of(result: pb.Result) -> str:
    """The file's name, from what the result is, e.g. "image-0.webp"; nothing foreign is in it."""
    ending = _ENDINGS.get(result.mime_type, _OTHER_ENDING)
    return f"{role_of(result)}-{result.index}{ending}"


def planned(job: pb.Job, folder: Path, *, force: bool) -> dict[str, Path]:
    """Where each result goes, by its id. Raises Refused before anything is written."""
    if why := not_there(job):
        raise Refused(why)
    there = [result for result in job.results if not result.expired]
    if not there:
        raise Refused(f"The results of {flat(job.job_id)} have expired; nothing is left of them.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Refused(f"{folder} cannot be a folder: {problem.strerror or problem}.") from None
    places = {result.result_id: folder / name_of(result) for result in there}
    for path in places.values():
        check_free(path, force=force)
    return places


async def save(calls: JobCalls, job: pb.Job, folder: Path, *, force: bool) -> dict[str, Path]:
    """Write the results that are left; those that were written, by id. Raises Refused, Fault."""
    places = planned(job, folder, force=force)
    written: dict[str, Path] = {}
    for result in job.results:
        if result.expired:
            error(f"{flat(result.result_id)} has expired and is left out.")
            continue
        path = places[result.result_id]
        await _write(calls, job, result, path, force=force)
        written[result.result_id] = path
    return written


async def _write(
    calls: JobCalls, job: pb.Job, result: pb.Result, path: Path, *, force: bool
) -> None:
    seen = hashlib.sha256()
    pieces = calls.read(job.owner, job.job_id, result.result_id, Span(0, result.size_bytes))
    try:
        with new_file(path, force=force) as out:
            async with aclosing(pieces):
                async for piece in pieces:
                    out.write(piece)
                    seen.update(piece)
            if seen.digest() != result.sha256:
                raise Refused(f"{path.name} arrived damaged and was not kept; try again.")
    except Fault as fault:
        raise Refused(f"{path.name}: {sentence(fault)}") from None
