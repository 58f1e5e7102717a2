"""Django's commands under the project's settings, for `manage.py` and `sluice` alike."""

import gc
import os
import sys
from collections.abc import Sequence

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.utils.connection import ConnectionDoesNotExist

from controlplane.core.audit.origin import coming_from, command_origin


def manage(argv: Sequence[str]) -> None:
    """Run the command `argv[1]` of the program `argv[0]`; exits where it fails."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    command = " ".join([os.path.basename(argv[0]), *argv[1:2]])
    try:
        with coming_from(lambda: command_origin(command)):
            execute_from_command_line(list(argv))
    except ImproperlyConfigured as error:
        sys.exit(f"Wrong configuration: {error}")
    except ConnectionDoesNotExist as error:
        sys.exit(f"Wrong SLUICE_ROLE for {command}: {error}")
    finally:
        # Else all that was imported would be looked through once more, for a quarter of a second.
        gc.freeze()
