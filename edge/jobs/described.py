"""What the routes take and answer that hand jobs in, for /openapi.json."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from edge.cutouts.request import JOBS_PATH
from edge.documenting import Described, Operation, header, posted, said
from edge.jobs.body import (
    KEY_PATTERN,
    KEY_RULE,
    MOST_KEY_CHARS,
    ForegroundJobBody,
    ImageJobBody,
    RemovalJobBody,
)
from edge.jobs.endpoint import KEY_HEADER
from edge.jobs.views import JobPage, JobView
from edge.pictures.described import as_form
from edge.speech import ErrorEnvelope

IMAGES_PATH = "/v1/images/generations/jobs"
FOREGROUNDS_PATH = "/v1/images/foreground-generations/jobs"
REMOVALS_PATH = JOBS_PATH
TAG = ("jobs", "Work that outlives the request for it, and every restart.")

_KEY = header(
    KEY_HEADER,
    KEY_RULE,
    {"type": "string", "minLength": 1, "maxLength": MOST_KEY_CHARS, "pattern": KEY_PATTERN},
)


def _submitted(name: str, summary: str, body: type, *files: str) -> Operation:
    told = posted(name, summary, TAG[0], body, said(JobView, "The job, accepted."))
    told["responses"] = {
        "202": told["responses"].pop("200"),
        **told["responses"],
        "409": said(ErrorEnvelope, "The idempotency key came with another request before."),
        "507": said(ErrorEnvelope, "There is no room for more inputs and results."),
    }
    told["parameters"].append(_KEY)
    return as_form(told, files, ())


def _of(body: type, name: str, summary: str, *files: str) -> Described:
    operation = partial(_submitted, name, f"{summary}, as a job", body, *files)
    return Described(operation, (body, JobView, JobPage))


JOBS: Mapping[str, Described] = MappingProxyType(
    {
        IMAGES_PATH: _of(ImageJobBody, "submit_image_job", "Generate pictures", "image"),
        FOREGROUNDS_PATH: _of(
            ForegroundJobBody,
            "submit_foreground_job",
            "Generate a subject and cut it out",
            *("image", "background_image", "background"),
        ),
        REMOVALS_PATH: _of(
            RemovalJobBody,
            "submit_removal_job",
            "Cut the subject out of a picture",
            *("image", "file", "background_image", "background"),
        ),
    }
)
"""By path."""
