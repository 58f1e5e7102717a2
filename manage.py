"""Command line of the control plane: Django's commands and `manage.py sluice …`."""

import sys

from controlplane.managing import manage

if __name__ == "__main__":
    manage(sys.argv)
