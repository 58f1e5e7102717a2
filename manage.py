"""Command line of the control plane: Django's commands and `manage.py sluice …`."""

import gc
import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.utils.connection import ConnectionDoesNotExist

from controlplane.core.audit.origin import coming_from, command_origin


def main() -> None:
    """Run the command named on the command line under the project's settings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    command = " ".join(["manage.py", *sys.argv[1:2]])
    try:
        with coming_from(lambda: command_origin(command)):
            execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"Wrong configuration: {error}")
    except ConnectionDoesNotExist as error:
        sys.exit(f"Wrong SLUICE_ROLE for {command}: {error}")
    finally:
        # Else all that was imported would be looked through once more, for a quarter of a second.
        gc.freeze()


if __name__ == "__main__":
    main()
