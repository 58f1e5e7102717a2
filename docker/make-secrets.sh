#!/bin/sh
# Makes the secrets of an installation, a file each, in a folder (docker/secrets by default), which
# docker/compose.yaml mounts and docs/kubernetes.md makes a Secret of. A file that is there stays. A
# value in the variable beside its name is taken; without one it is made at random.
set -eu
umask 077
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"

while read -r name variable; do
    file=$folder/$name
    [ ! -e "$file" ] || continue
    eval "value=\${$variable:-}"
    [ -n "$value" ] || value=$(od -An -v -N 32 -t x1 /dev/urandom | tr -d ' \n')
    printf %s "$value" > "$file"
    # The folder is closed to others; the accounts of the containers must be able to read the file.
    chmod 444 "$file"
done <<END
postgres-superuser POSTGRES_PASSWORD
postgres-owner SLUICE_OWNER_PASSWORD
postgres-app SLUICE_APP_PASSWORD
postgres-gateway SLUICE_GATEWAY_PASSWORD
redis REDIS_PASSWORD
django SLUICE_SECRET_KEY
key-pepper SLUICE_KEY_PEPPER
cache-salt SLUICE_CACHE_SALT_SECRET
playground-token SLUICE_PLAYGROUND_TOKEN_KEY
content-key SLUICE_CONTENT_KEY
factor-key SLUICE_FACTOR_KEY
connection-key SLUICE_CONNECTION_KEY
webhook-key SLUICE_WEBHOOK_KEY
operator-token SLUICE_OPERATOR_TOKEN
metrics-token SLUICE_METRICS_TOKEN
grafana GRAFANA_PASSWORD
END

# Earlier values of those that are replaced with an overlap, one a line: none, until one is.
for name in django key-pepper content-key factor-key connection-key webhook-key; do
    file=$folder/$name.before
    [ -e "$file" ] || : > "$file"
    chmod 444 "$file"
done

# Where alerts are posted to; until it is set, nowhere.
if [ ! -e "$folder/alert-webhook" ]; then
    printf %s "${ALERT_WEBHOOK:-http://127.0.0.1:9/nobody}" > "$folder/alert-webhook"
    chmod 444 "$folder/alert-webhook"
fi
