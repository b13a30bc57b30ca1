# MySQL instead of MariaDB, with SERVERS_DATABASE=mysql. Only Debian sid has it. sid changes, so what this fetches today may
# not run tomorrow. Nothing else depends on it.
# shellcheck shell=bash disable=SC2034,SC2154

mysql_port=${SERVERS_MYSQL_PORT:-13306}
mysql_needs=("${debian_needs[@]}")
# Remove the folder to fetch sid's current version.
mysql_root=$cache/mysql-sid

fetch_mysql() { unpack_debian "$mysql_root" sid mysql-server-core usr/sbin/mysqld; }

mysql_prepare() {
  local mysqld options
  mapfile -t mysqld < <(debian_command "$mysql_root" usr/sbin/mysqld)
  mysqld+=(--no-defaults)
  options=("--datadir=$home/data" "--user=$(id -un)" "--basedir=$mysql_root/usr" "--lc-messages-dir=$mysql_root/usr/share/mysql"
    "--character-sets-dir=$mysql_root/usr/share/mysql/charsets" "--plugin-dir=$mysql_root/usr/lib/mysql/plugin")
  if [[ ! -e $home/installed ]]; then
    rm -rf "$home/data"
    "${mysqld[@]}" "${options[@]}" --initialize-insecure >>"$home/log" 2>&1 ||
      { tail -n 25 "$home/log" >&2; fail "creating MySQL's system tables failed"; }
    touch "$home/installed"
  fi
  # Runs before the first connection. All rights: tests create databases of their own.
  cat >"$home/init.sql" <<'SQL'
CREATE DATABASE IF NOT EXISTS notyet CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS 'notyet'@'%' IDENTIFIED BY 'notyet';
GRANT ALL PRIVILEGES ON *.* TO 'notyet'@'%' WITH GRANT OPTION;
SQL
  # A probe that disconnects counts as a failed connection of its host.
  run=("${mysqld[@]}" "${options[@]}" "--init-file=$home/init.sql" --socket=mysql.sock "--pid-file=$home/mysqld.pid" --mysqlx=OFF --secure-file-priv=NULL
    --bind-address=127.0.0.1 "--port=$port" --skip-name-resolve --max-connections=300 --max-connect-errors=1000000
    "--innodb-buffer-pool-size=${SERVERS_MYSQL_BUFFER_POOL:-1G}" --innodb-flush-log-at-trx-commit=1 --innodb-redo-log-capacity=256M
    --skip-log-bin --transaction-isolation=READ-COMMITTED --max-allowed-packet=64M
    --character-set-server=utf8mb4 --default-time-zone=+00:00)
}
