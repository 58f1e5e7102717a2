#!/bin/sh
# At the first start of an empty PostgreSQL: the owner of Sluice's tables, who makes the other roles.
set -eu

psql -v ON_ERROR_STOP=1 -v password="$(cat /run/secrets/postgres-owner)" --username postgres <<'SQL'
CREATE ROLE sluice_owner LOGIN CREATEROLE PASSWORD :'password';
CREATE DATABASE sluice OWNER sluice_owner;
SQL
