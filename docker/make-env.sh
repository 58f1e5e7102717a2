#!/bin/sh
# Prints the secrets that docker/compose.yaml needs, made at random: keep them in docker/.env.
set -eu
umask 077

for name in POSTGRES_PASSWORD SLUICE_OWNER_PASSWORD SLUICE_APP_PASSWORD SLUICE_GATEWAY_PASSWORD \
    REDIS_PASSWORD GRAFANA_PASSWORD SLUICE_SECRET_KEY SLUICE_KEY_PEPPER SLUICE_CACHE_SALT_SECRET \
    SLUICE_PLAYGROUND_TOKEN_KEY SLUICE_CONTENT_KEY SLUICE_FACTOR_KEY SLUICE_WEBHOOK_KEY \
    SLUICE_OPERATOR_TOKEN SLUICE_METRICS_TOKEN; do
    printf '%s=%s\n' "$name" "$(od -An -v -N 32 -t x1 /dev/urandom | tr -d ' \n')"
done
