# MariaDB instead of MySQL (Debian has no mysql-server). Durable: a commit is on disk when it returns; with a cluster, on the
# replica's disk too.
# shellcheck shell=bash disable=SC2034,SC2154

mariadb_port=${SERVERS_MYSQL_PORT:-13306}
mariadb_needs=(mariadbd=mariadb-server-core mariadb-install-db=mariadb-server-core mariadb=mariadb-client-core)
[[ ! $cluster ]] || mariadb_needs+=(mariadb-backup=mariadb-backup)
[[ ! ${SERVERS_MYSQL_BINLOG:-} ]] || mariadb_needs+=(mariadb-binlog=mariadb-client mariadb-dump=mariadb-client)

# Of a cluster, the server that takes writes: the first, until `promote` names another.
mariadb_primary() {
  if [[ ! $cluster ]]; then echo mariadb; elif [[ -s $dir/primary ]]; then cat "$dir/primary"; else echo mariadb-1; fi
}

mariadb_prepare() {
  # A server that starts deletes the temporary tables in its tmpdir, also those of another server.
  local options=(--no-defaults "--datadir=$home/data" "--user=$(id -un)" "--tmpdir=$home") replicating=() role=primary
  if [[ $cluster ]]; then
    [[ $name == "$(mariadb_primary)" ]] || role=replica
    mariadb_replicating
  fi
  # Who was the primary may have commits that its successor never saw.
  [[ -e $home/installed && $role == "$(cat "$home/role" 2>/dev/null || echo "$role")" ]] || mariadb_create
  run=(mariadbd "${options[@]}" --socket=mariadb.sock "--pid-file=$home/mariadbd.pid"
    --bind-address=127.0.0.1 "--port=$port" --skip-name-resolve --max-connections=300
    "--innodb-buffer-pool-size=${SERVERS_MYSQL_BUFFER_POOL:-1G}" --innodb-flush-log-at-trx-commit=1 --innodb-log-file-size=256M
    --transaction-isolation=READ-COMMITTED --max-allowed-packet=16M --character-set-server=utf8mb4 --default-time-zone=+00:00)
  if [[ $cluster ]]; then
    run+=("${replicating[@]}")
  elif [[ ${SERVERS_MYSQL_BINLOG:-} ]]; then
    run+=(--server-id=1 --log-bin=binlog --binlog-format=ROW --sync-binlog=1)
  else
    run+=(--skip-log-bin)
  fi
  # The socket's name is relative to the data folder: a path of its own could exceed the 107 bytes a socket may have.
  if [[ $role == primary ]]; then
    # Runs before the first connection. All rights: tests create databases of their own.
    cat >"$home/init.sql" <<'SQL'
CREATE DATABASE IF NOT EXISTS notyet CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS 'notyet'@'%' IDENTIFIED BY 'notyet';
GRANT ALL PRIVILEGES ON *.* TO 'notyet'@'%' WITH GRANT OPTION;
SQL
    run+=("--init-file=$home/init.sql")
  fi
}

# Semi-synchronous with AFTER_SYNC: nobody sees a commit before the replica has it. While no replica is connected the primary
# does not wait.
mariadb_replicating() {
  replicating=("--server-id=$(number_of "$name")" --log-bin=binlog --relay-log=relay --binlog-format=ROW --sync-binlog=1 --log-slave-updates --gtid-strict-mode=ON
    --rpl-semi-sync-master-enabled=ON --rpl-semi-sync-slave-enabled=ON --rpl-semi-sync-master-wait-point=AFTER_SYNC
    --rpl-semi-sync-master-wait-no-slave=OFF --rpl-semi-sync-master-timeout=60000 --slave-net-timeout=10)
  [[ $role == primary ]] || replicating+=(--read-only=ON)
}

mariadb_create() {
  rm -rf "$home/data" "$home/installed"
  if [[ $role == replica ]]; then
    mariadb_clone >>"$home/log" 2>&1 || { tail -n 25 "$home/log" >&2; fail "copying the primary's data failed"; }
  else
    mariadb-install-db "${options[@]}" --auth-root-authentication-method=normal --skip-test-db >>"$home/log" 2>&1 ||
      { tail -n 25 "$home/log" >&2; fail "creating MariaDB's system tables failed"; }
  fi
  echo "$role" >"$home/role"
  touch "$home/installed"
}

mariadb_clone() {
  local primary
  primary=$(mariadb_primary)
  start "$primary"
  await_ready "$primary"
  mariadb-backup --no-defaults --backup --host=127.0.0.1 "--port=$(port_of "$primary")" --user=root "--target-dir=$home/data" &&
    mariadb-backup --no-defaults --prepare "--target-dir=$home/data"
}

# mariadb_sql NAME SQL [OPTION]: the option says how results are printed.
mariadb_sql() { mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P "$(port_of "$1")" -u root --connect-timeout=3 "${3--NB}" -e "$2"; }

# mariadb_assemble makes a server that was copied follow the primary, and waits until the primary waits for it.
mariadb_assemble() {
  local primary replica gtid
  primary=$(mariadb_primary)
  for replica in $(nodes_of mariadb); do
    [[ $replica != "$primary" && -n $(pid_of "$replica") && -n $(pid_of "$primary") ]] || continue
    if [[ -z $(mariadb_sql "$replica" 'SHOW ALL SLAVES STATUS') ]]; then
      gtid=$(cut -f 3 "$dir/$replica/data/mariadb_backup_binlog_info" 2>/dev/null || cut -f 3 "$dir/$replica/data/xtrabackup_binlog_info")
      mariadb_sql "$replica" "SET GLOBAL gtid_slave_pos = '$gtid';
        CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=$(port_of "$primary"), MASTER_USER='root', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos;
        START SLAVE"
    fi
    await "$replica follows $primary" mariadb_follows "$replica"
  done
}

# mariadb_follows tells whether a replica has all that its primary had when it was asked, and the primary waits for it from now on.
mariadb_follows() {
  local position
  position=$(mariadb_sql "$(mariadb_primary)" 'SELECT @@gtid_binlog_pos') &&
    [[ $(mariadb_sql "$1" "SELECT MASTER_GTID_WAIT('$position', 5)") == 0 ]] &&
    [[ $(mariadb_sql "$(mariadb_primary)" "SHOW STATUS LIKE 'Rpl_semi_sync_master_status'") == *ON ]]
}

# mariadb_promote kills the primary and makes the replica the primary. With `late`, the replica lacks the primary's last second.
mariadb_promote() {
  local old new pid
  old=$(mariadb_primary)
  new=$(nodes_of mariadb | grep -vx "$old")
  [[ -n $(pid_of "$new") ]] || fail "$new does not run: scripts/servers up --cluster"
  if [[ ${1:-} == late ]]; then
    mariadb_sql "$new" 'STOP SLAVE IO_THREAD'
    sleep 1
  fi
  pid=$(pid_of "$old")
  if [[ $pid ]]; then
    kill -KILL "$pid"
    await "$old ends" ended "$pid"
    rm -f "$dir/$old/pid"
  fi
  # What it has received counts: the primary's callers were told.
  mariadb_sql "$new" 'START SLAVE SQL_THREAD; STOP SLAVE IO_THREAD' 2>>"$dir/$new/log"
  await "$new has applied what it received" mariadb_applied "$new"
  mariadb_sql "$new" 'STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0'
  echo "$new" >"$dir/primary"
  echo primary >"$dir/$new/role"
  echo "servers: $new is the primary, on 127.0.0.1:$(port_of "$new")" >&2
}

ended() { ! runs "$1"; }

mariadb_applied() {
  local received
  received=$(mariadb_sql "$1" 'SHOW ALL SLAVES STATUS' --vertical | sed -n 's/^ *Gtid_IO_Pos: //p') &&
    [[ -n $received && $(mariadb_sql "$1" "SELECT MASTER_GTID_WAIT('$received', 5)") == 0 ]]
}
