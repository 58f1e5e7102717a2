"""Where the project and its data folder lie."""

from pathlib import Path

from controlplane.settings import env

BASE_DIR = Path(__file__).resolve().parents[2]
DATA_DIR = env.path("SLUICE_DATA", BASE_DIR / "var")
# Keys and passwords; where the variable is set, whoever starts the process has put them there.
SECRETS_DIR = env.path("SLUICE_SECRETS", DATA_DIR / "secrets")
# Exported files; processes on several hosts must see one folder, so that each can go on with a file
# and serve it.
EXPORTS_DIR = env.path("SLUICE_EXPORTS", DATA_DIR / "exports")
