# Redis, without persistence: the index must survive losing it. It evicts nothing; every installation must be configured like this.
# shellcheck shell=bash disable=SC2034,SC2154

redis_port=${SERVERS_REDIS_PORT:-16379}
redis_needs=(redis-server=redis-server)

redis_prepare() {
  cat >"$home/redis.conf" <<CONF
bind 127.0.0.1
port $redis_port
dir "$home"
save ""
appendonly no
maxmemory-policy noeviction
daemonize no
# The command line is how pid_of knows it.
set-proc-title no
CONF
  run=(redis-server "$home/redis.conf")
}
