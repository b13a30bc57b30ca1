# Redis, or Valkey, without persistence: the index must survive losing it. It evicts nothing; every installation must be
# configured like this. A cluster is a Redis Cluster of three masters with a replica each, or one master and one replica with
# three sentinels.
# shellcheck shell=bash disable=SC2034,SC2154

redis_port=${SERVERS_REDIS_PORT:-16379}
sentinel_port=$((redis_port + 5))
redis_master=notyet # its name among the sentinels
redis_program=${SERVERS_REDIS:-redis}
[[ $redis_program == redis || $redis_program == valkey ]] || { echo "servers: SERVERS_REDIS is '$redis_program': write redis or valkey" >&2; exit 2; }
if [[ $redis_program == redis ]]; then
  redis_needs=(redis-server=redis-server redis-cli=redis-tools)
else
  redis_needs=("${debian_needs[@]}")
  # Debian has it from 13 on.
  valkey_root=$cache/valkey-trixie
fi

fetch_valkey() { unpack_debian "$valkey_root" trixie valkey-server usr/bin/valkey-server; }

# redis_command PROGRAM prints what runs redis-server or redis-cli, a word a line.
redis_command() {
  if [[ $redis_program == redis ]]; then echo "$1"; else debian_command "$valkey_root" "usr/bin/valkey-${1#redis-}"; fi
}

redis_cli() {
  local words
  mapfile -t words < <(redis_command redis-cli)
  "${words[@]}" "$@"
}

redis_prepare() {
  mapfile -t run < <(redis_command redis-server)
  run+=("$home/redis.conf")
  # Sentinels write what they decided into it.
  [[ $cluster != sentinel ]] || ! grep -qsx "port $port" "$home/redis.conf" || return 0
  cat >"$home/redis.conf" <<CONF
bind 127.0.0.1
port $port
dir "$home"
save ""
appendonly no
maxmemory-policy noeviction
daemonize no
# The command line is how pid_of knows it.
set-proc-title no
CONF
  case $cluster in
    cluster) printf 'cluster-enabled yes\ncluster-port %d\ncluster-node-timeout 3000\n' $((port + 1)) ;;
    sentinel) [[ $name == redis-1 ]] || echo "replicaof 127.0.0.1 $redis_port" ;;
  esac >>"$home/redis.conf"
}

sentinel_prepare() {
  mapfile -t run < <(redis_command redis-server)
  run+=("$home/sentinel.conf" --sentinel)
  # A sentinel keeps what it learned in its configuration.
  ! grep -qsx "port $port" "$home/sentinel.conf" || return 0
  cat >"$home/sentinel.conf" <<CONF
bind 127.0.0.1
port $port
dir "$home"
daemonize no
set-proc-title no
sentinel monitor $redis_master 127.0.0.1 $redis_port 2
sentinel down-after-milliseconds $redis_master 3000
sentinel failover-timeout $redis_master 10000
CONF
}

# redis_assemble joins servers that do not know each other yet.
redis_assemble() {
  local each addresses known
  IFS=, read -ra addresses < <(addresses_of redis)
  if [[ $cluster == sentinel ]]; then
    for each in $(nodes_of sentinel); do [[ -n $(pid_of "$each") ]] || return 0; done
    await "the sentinels know each other" sentinels_know
    return
  fi
  for each in "${addresses[@]}"; do
    known=$(redis_cli -p "${each#*:}" cluster info | tr -d '\r' | sed -n 's/^cluster_known_nodes://p') || return 0 # some do not run
    [[ $known == 1 ]] || break
  done
  if [[ $known == 1 ]]; then
    redis_cli --cluster create "${addresses[@]}" --cluster-replicas 1 --cluster-yes >>"$dir/redis-1/log" 2>&1 ||
      { tail -n 25 "$dir/redis-1/log" >&2; fail "joining the nodes of Redis Cluster failed"; }
  fi
  await "Redis Cluster is whole" redis_whole
}

redis_whole() {
  local each
  for each in $(nodes_of redis); do
    [[ -z $(pid_of "$each") ]] || redis_cli -p "$(port_of "$each")" cluster info | grep -q '^cluster_state:ok' || return 1
  done
}

# A sentinel that does not know the replica cannot make it the master.
sentinels_know() {
  local each
  for each in $(nodes_of sentinel); do
    redis_cli -p "$(port_of "$each")" sentinel ckquorum "$redis_master" | grep -q '^OK 3 ' || return 1
    redis_cli -p "$(port_of "$each")" sentinel master "$redis_master" | grep -A 1 '^num-slaves$' | grep -qx 1 || return 1
  done
}
