"""`cohabit check`: a configuration read from end to end, as `cohabit up` does, and nothing started.

For people who want to know before they save a file that a running house follows, and for
deployments that restart a service when its checksum changes.
"""

import json

from chassis import config
from chassis.config import ConfigError, fail
from chassis.sections import fingerprint
from cli import house
from cli.console import note
from cli.dial import ConfigOption, JsonOption
from cli.up import remedy

_EDGE = "edge"


def command(config_path: ConfigOption = None, json_wanted: JsonOption = False) -> None:
    """Check the whole configuration: exit 0 if it can be used, else 2 and a line for each mistake.

    Files of models that cannot be used are named; they are no mistake of the configuration.
    """
    try:
        document = config.load(config_path)
        whole = house.load(config_path)
    except ConfigError as error:
        fail(error)
    for file, trouble in whole.troubles().items():
        note(remedy(whole, file, trouble))
    if json_wanted:
        print(as_json(document, whole))
        return
    models = len(document.model_names())
    print(f"{whole.path} can be used: {models} model{'' if models == 1 else 's'}.")


def as_json(document: config.Document, whole: house.Whole) -> str:
    """What scripts may want of it."""
    services = (*whole.services, _EDGE)
    return json.dumps(
        {
            "path": str(whole.path),
            "models": sorted(document.model_names()),
            "unusable_files": [str(whole.place_of(file)) for file in whole.troubles()],
            "restart_checksums": {name: fingerprint(document, name) for name in services},
        }
    )
