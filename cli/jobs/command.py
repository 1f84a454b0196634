"""`cohabit jobs`: the list of jobs, or one of them shown, followed, ended or saved.

What is asked for is understood here; what is done stands in `shell`, imported when it is needed.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.console import Refused
from cli.dial import ConfigOption, JsonOption

_MOST_JOBS = 10_000
_USUAL_LIMIT = 20


class StateName(StrEnum):
    """States as a person types them."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


def command(
    job_id: Annotated[str | None, typer.Argument(metavar="ID", help="Show this job.")] = None,
    states: Annotated[
        list[StateName] | None,
        typer.Option("--state", help="List jobs of this state alone; may be repeated."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, max=_MOST_JOBS, help=f"List so many; {_USUAL_LIMIT} otherwise."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep the list on the terminal and follow it.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Follow the job to its end; exit 1 if it did not succeed."),
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Ask the job to end.")] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FOLDER", help="Write the job's results into a folder."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Save over files that exist.")] = False,
    owner: Annotated[
        str, typer.Option("--owner", metavar="KEY", help="Jobs of this API key, by its name.")
    ] = "",
    config_path: ConfigOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """List jobs, newest first; or show, follow, end or save one of them."""
    from cli.jobs import shell  # noqa: PLC0415

    if job_id is None:
        one = {"--watch": watch, "--cancel": cancel, "--save": save, "--force": force}
        _refuse(one, "{} is for one job; name it: `cohabit jobs ID {}`.")
        which = shell.Which(states or (), limit or _USUAL_LIMIT, owner)
        shell.show_list(config_path, which, follow=follow, as_json=json_wanted)
        return
    many = {"--state": states, "--limit": limit, "--follow": follow}
    _refuse(many, "{} is for the list; leave it out, or the job.")
    if cancel:
        others = {"--watch": watch, "--save": save, "--force": force}
        _refuse(others, "--cancel stands alone; leave {} out.")
        shell.cancel(config_path, owner, job_id, as_json=json_wanted)
        return
    if save is None:
        _refuse({"--force": force}, "{} is for --save; leave it out.")
    wish = shell.Wish(watch, save, force)
    shell.show(config_path, owner, job_id, wish, as_json=json_wanted)


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Raises Refused when one of these options was given; `why` names it where {} stands."""
    for option, value in given.items():
        if value:
            raise Refused(why.replace("{}", option))
