# MySQL instead of MariaDB, with SERVERS_DATABASE=mysql. Only Debian sid has it, so it is unpacked in the cache with the
# libraries that it needs, and run by its own loader; nothing is installed. sid changes, so what this fetches today may not
# run tomorrow. Nothing else depends on it.
# shellcheck shell=bash disable=SC2034,SC2154

mysql_port=${SERVERS_MYSQL_PORT:-13306}
mysql_needs=(apt-get=apt dpkg-deb=dpkg /usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring)
# Remove the folder to fetch sid's current version.
mysql_root=$cache/mysql-sid

# apt works in folders of its own: it resolves the packages for an empty system, and checks signatures and sums.
mysql_apt() {
  local at=$1
  shift
  apt-get -qq -o "Dir::Etc::SourceList=$at/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$at/state" \
    -o Dir::State::status=/dev/null -o "Dir::Cache=$at/cache" -o APT::Sandbox::User="$(id -un)" "$@" >&2 </dev/null
}

fetch_mysql() {
  [[ -d $mysql_root ]] && return
  "$scripts/need" "${mysql_needs[@]}"
  echo "servers: fetching MySQL from Debian sid into $mysql_root (60 MB, once)" >&2
  local tmp package
  mkdir -p "$cache"
  tmp=$(mktemp -d "$cache/mysql-fetch.XXXXXX")
  # shellcheck disable=SC2064  # now, as $tmp is local
  trap "rm -rf '$tmp'" EXIT
  mkdir -p "$tmp"/{state/lists,cache/archives}/partial "$tmp/root"
  echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main' >"$tmp/sources.list"
  export -f mysql_apt
  "$scripts/retry" bash -c 'mysql_apt "$@"' - "$tmp" update || fail "reading the list of Debian sid failed"
  "$scripts/retry" bash -c 'mysql_apt "$@"' - "$tmp" install -y --no-install-recommends --download-only mysql-server-core ||
    fail "fetching mysql-server-core failed"
  for package in "$tmp"/cache/archives/*.deb; do
    # Only its scripts need Perl.
    [[ ${package##*/} == *perl* ]] || dpkg-deb -x "$package" "$tmp/root"
  done
  mysql_root=$tmp/root mysql_command
  "${mysqld[@]}" --version >&2 || fail "the mysqld of Debian sid does not run here"
  # Renamed last: a folder with this name is whole.
  mv -T "$tmp/root" "$mysql_root" 2>/dev/null || [[ -d $mysql_root ]]
}

# mysql_command sets mysqld to what runs the server: its loader, its libraries, itself.
mysql_command() {
  local loader
  loader=$(compgen -G "$mysql_root/usr/lib/*-linux-gnu/ld-linux-*.so.*" | head -n 1) || fail "there is no loader in $mysql_root: remove that folder"
  mysqld=("$loader" --library-path "$(dirname "$loader")" "$mysql_root/usr/sbin/mysqld" --no-defaults)
}

mysql_prepare() {
  local mysqld options
  mysql_command
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
    --bind-address=127.0.0.1 "--port=$mysql_port" --skip-name-resolve --max-connections=300 --max-connect-errors=1000000
    "--innodb-buffer-pool-size=${SERVERS_MYSQL_BUFFER_POOL:-1G}" --innodb-flush-log-at-trx-commit=1 --innodb-redo-log-capacity=256M
    --skip-log-bin --transaction-isolation=READ-COMMITTED --max-allowed-packet=64M
    --character-set-server=utf8mb4 --default-time-zone=+00:00)
}
