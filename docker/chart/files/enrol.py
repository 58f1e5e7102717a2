"""Before a pod's node starts: a credential for the pod's name, by the operator's token.

A pod that takes the place of another one has its name, whose credentials are revoked first.
Arguments: the address of the web process, the node's name, its pool, its models as a JSON list.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

TOKEN_FILE = os.environ.get("SLUICE_OPERATOR_TOKEN_FILE", "/run/secrets/operator/token")
CREDENTIAL_FILE = os.environ.get("SLUICE_CREDENTIAL_FILE", "/data/credential")
ANSWER_S_MAX = 60
NOT_FOUND = 404


def post(url: str, body: dict[str, Any], token: str = "") -> Any:
    """The answer to a POST; None where there is no such thing."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = "Bearer " + token
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == NOT_FOUND:
            return None
        sys.exit(f"{url} answers {error.code}: {error.read().decode(errors='replace')}")


def main(web: str, name: str, pool: str, models: str) -> None:
    with open(TOKEN_FILE) as file:
        operator = file.read().strip()
    post(f"{web}/api/fleet/nodes/{quote(name)}/remove", {}, operator)
    wanted = {"pool": pool, "models": json.loads(models) or None, "approved": True, "life_hours": 1}
    made = post(f"{web}/api/fleet/tokens", wanted, operator)
    if made is None:
        sys.exit(f"There is no pool {pool}.")
    enrolled = post(f"{web}/api/fleet/enrol", {"token": made["token"], "name": name, "pool": pool})
    if enrolled is None:
        sys.exit(f"{web} does not enrol nodes.")
    partial = CREDENTIAL_FILE + ".partial"
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(enrolled["credential"] + "\n")
    os.replace(partial, CREDENTIAL_FILE)


if __name__ == "__main__":
    main(*sys.argv[1:])
