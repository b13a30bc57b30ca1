# MariaDB instead of MySQL (Debian has no mysql-server). Durable: a commit is on disk when it returns.
# shellcheck shell=bash disable=SC2034,SC2154

mariadb_port=${SERVERS_MYSQL_PORT:-13306}
mariadb_needs=(mariadbd=mariadb-server-core mariadb-install-db=mariadb-server-core mariadb=mariadb-client-core)

mariadb_prepare() {
  local options=(--no-defaults "--datadir=$home/data" "--user=$(id -un)")
  if [[ ! -e $home/installed ]]; then
    rm -rf "$home/data"
    mariadb-install-db "${options[@]}" --auth-root-authentication-method=normal --skip-test-db >>"$home/log" 2>&1 ||
      { tail -n 25 "$home/log" >&2; fail "creating MariaDB's system tables failed"; }
    touch "$home/installed"
  fi
  # Runs before the first connection. All rights: tests create databases of their own.
  cat >"$home/init.sql" <<'SQL'
CREATE DATABASE IF NOT EXISTS notyet CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS 'notyet'@'%' IDENTIFIED BY 'notyet';
GRANT ALL PRIVILEGES ON *.* TO 'notyet'@'%' WITH GRANT OPTION;
SQL
  # The socket's name is relative to the data folder: a path of its own could exceed the 107 bytes a socket may have.
  run=(mariadbd "${options[@]}" "--init-file=$home/init.sql" --socket=mariadb.sock "--pid-file=$home/mariadbd.pid"
    --bind-address=127.0.0.1 "--port=$mariadb_port" --skip-name-resolve --max-connections=300
    "--innodb-buffer-pool-size=${SERVERS_MYSQL_BUFFER_POOL:-1G}" --innodb-flush-log-at-trx-commit=1 --innodb-log-file-size=256M
    --skip-log-bin --transaction-isolation=READ-COMMITTED --max-allowed-packet=16M
    --character-set-server=utf8mb4 --default-time-zone=+00:00)
}
