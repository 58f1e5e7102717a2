"""Where the project and its data folder lie."""

from pathlib import Path

from controlplane.settings import env

BASE_DIR = Path(__file__).resolve().parents[2]
# A checkout has them beside its packages; of an installed wheel the packages are all there is.
INSTALLED = not (BASE_DIR / "manage.py").exists()
# The documentation's site, where it has been built: `make docs`, or with the wheel.
DOCS_DIR = BASE_DIR / ("controlplane/documentation" if INSTALLED else "var/docs")
RUNBOOKS_DIR = BASE_DIR / ("controlplane" if INSTALLED else "docs") / "runbooks"
_DATA = Path.home() / ".local" / "share" / "sluice" if INSTALLED else BASE_DIR / "var"
DATA_DIR = env.path("SLUICE_DATA", _DATA)
# Keys and passwords; where the variable is set, whoever starts the process has put them there.
SECRETS_DIR = env.path("SLUICE_SECRETS", DATA_DIR / "secrets")
# Exported files; processes on several hosts must see one folder, so that each can go on with a file
# and serve it.
EXPORTS_DIR = env.path("SLUICE_EXPORTS", DATA_DIR / "exports")
