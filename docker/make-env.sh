#!/bin/sh
# Prints the secrets that docker/compose.yaml needs, made at random: keep them in docker/.env.
set -eu
umask 077

for name in POSTGRES_PASSWORD SLUICE_OWNER_PASSWORD SLUICE_APP_PASSWORD SLUICE_GATEWAY_PASSWORD \
    REDIS_PASSWORD SLUICE_METRICS_TOKEN GRAFANA_PASSWORD; do
    # Letters and digits alone, since some of them stand in URLs.
    printf '%s=%s\n' "$name" "$(od -An -N 24 -t x1 /dev/urandom | tr -d ' \n')"
done
