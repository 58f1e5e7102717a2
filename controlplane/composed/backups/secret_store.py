"""The installation's secrets in a backup: one file, sealed with a passphrase.

Passwords of databases are left out: a restored installation has its own. So is what came from a
variable, which is kept wherever that is set.
"""

import os
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from django.conf import settings

from controlplane.composed.backups.archive import SECRETS, BackupError
from controlplane.core.seal import BrokenSeal, sealed, unsealed
from controlplane.embedded.demo import write_private
from controlplane.settings.paths import SECRETS_DIR
from controlplane.settings.secret_files import FROM_VARIABLES

SALT_BYTES = 16
# About 0.3 s and 128 MiB for each guess.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**17, 8, 1
KEY_BYTES = 32
PASSPHRASE_CHARS_MIN = 16
PLACE = b"sluice backup secrets"
OWN = ("postgres-", "redis")


def sealing_passphrase() -> str:
    """The passphrase that was set; raises BackupError where secrets cannot be sealed with it."""
    if settings.SLUICE_ROLE != "all":
        raise BackupError(
            f"Only SLUICE_ROLE=all, or none, reads every secret, not {settings.SLUICE_ROLE}. With "
            "--without-secrets they are left out; keep them yourself."
        )
    text: str = settings.BACKUP_PASSPHRASE
    if len(text) < PASSPHRASE_CHARS_MIN:
        raise BackupError(
            f"SLUICE_BACKUP_PASSPHRASE must have at least {PASSPHRASE_CHARS_MIN} characters: it "
            "seals the installation's secrets. With --without-secrets they are left out; without "
            "them no API key of the backup is valid and nothing sealed can be read."
        )
    return text


def seal_secrets(partial: Path, passphrase: str) -> int:
    """Write the secrets; returns how many."""
    found = {
        path.name: path.read_text().strip()
        for path in sorted(SECRETS_DIR.glob("[!.]*"))
        if path.is_file() and not path.name.startswith(OWN) and path.name not in FROM_VARIABLES
    }
    salt = os.urandom(SALT_BYTES)
    content = sealed(_key(passphrase, salt), msgspec.json.encode(found), PLACE)
    (partial / SECRETS).write_bytes(salt + content)
    return len(found)


def open_secrets(backup: Path, passphrase: str) -> dict[str, str]:
    """The secrets by their file's name; raises BackupError."""
    kept = (backup / SECRETS).read_bytes()
    try:
        text = unsealed(_key(passphrase, kept[:SALT_BYTES]), kept[SALT_BYTES:], PLACE)
    except BrokenSeal as error:
        raise BackupError(
            "SLUICE_BACKUP_PASSPHRASE is not the one that the backup was sealed with."
        ) from error
    return msgspec.json.decode(text, type=dict[str, str])


def put_secrets(values: dict[str, str]) -> None:
    for name, value in values.items():
        if Path(name).name != name or name.startswith(OWN):
            raise BackupError(f"{name!r} is no name of a secret.")
        write_private(SECRETS_DIR / name, value + "\n")


def _key(passphrase: str, salt: bytes) -> bytes:
    kdf = Scrypt(salt=salt, length=KEY_BYTES, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P)
    return kdf.derive(passphrase.encode())
