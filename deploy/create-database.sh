#!/bin/sh
# Run once by the database's image, as its superuser: the role and the database of Rowhouse.
set -eu
password=$(cat "${ROWHOUSE_PASSWORD_FILE:-/run/secrets/rowhouse_password}")
psql -v ON_ERROR_STOP=1 -v password="$password" --username postgres --dbname postgres <<'SQL'
CREATE ROLE rowhouse LOGIN PASSWORD :'password';
CREATE DATABASE rowhouse OWNER rowhouse TEMPLATE template0 ENCODING 'UTF8';
REVOKE CONNECT, TEMPORARY ON DATABASE rowhouse FROM PUBLIC;
SQL
