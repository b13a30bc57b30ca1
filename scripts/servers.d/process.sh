# Starting, finding and stopping one server. Its kind's file gives KIND_port, KIND_needs and KIND_prepare; the last writes what
# the server $name needs under $home to listen at $port, and sets the array `run` to its command line.
# shellcheck shell=bash disable=SC2154

fail() { echo "servers: $*" >&2; exit 1; }

kind_of() { echo "${1%-*}"; }

# number_of a server among those of its kind: kafka-2 is 2. One whose name has no number is 1.
number_of() { if [[ $1 == *-* ]]; then echo "${1##*-}"; else echo 1; fi; }

# Servers of one kind listen 10 ports from each other.
port_of() { local variable; variable=$(kind_of "$1")_port; echo $((${!variable} + 10 * ($(number_of "$1") - 1))); }

# nodes_of prints the names of a kind's servers.
nodes_of() { local each; for each in "${all[@]}"; do [[ $(kind_of "$each") != "$1" ]] || echo "$each"; done; }

addresses_of() {
  local each list=()
  for each in $(nodes_of "$1"); do list+=("127.0.0.1:$(port_of "$each")"); done
  (IFS=,; echo "${list[*]}")
}

# Words of a process's command line; empty for a zombie and for a number that nobody has.
command_line() { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null

# pid_of prints the process that this folder's pid file names, if it still is that server: a command line with the
# server's folder in it distinguishes it from another process with that number, for example after a reboot.
pid_of() {
  local pid home=$dir/$1
  [[ -s $home/pid ]] || return 0
  pid=$(<"$home/pid")
  [[ $(command_line "$pid") != *"$home/"* ]] || echo "$pid"
}

# runs tells whether a process is there and has not ended. Its command line does not: in the middle of exec it is empty.
runs() { [[ -r /proc/$1/stat && $(cat "/proc/$1/stat" 2>/dev/null) =~ \)\ [^ZX]\  ]]; }

ready() { timeout 5 "$scripts/servers.d/probe" "$(kind_of "$1")" "$(port_of "$1")" 2>/dev/null; }

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

start() {
  local name=$1 home=$dir/$1 port run=()
  [[ -z $(pid_of "$name") ]] || return 0
  port=$(port_of "$name")
  if listening "$port"; then fail "something else listens on 127.0.0.1:$port: set SERVERS_$(setting "$name")_PORT"; fi
  mkdir -p "$home"
  "$(kind_of "$name")_prepare"
  echo "servers: starting $name on 127.0.0.1:$port" >&2
  echo "$port" >"$home/port"
  program_of "$name" >"$home/program"
  # A session of its own without a terminal, so that it outlives the caller's shell. Descriptor 9 is the caller's lock.
  (
    cd "$home" || exit
    setsid "${run[@]}" </dev/null >>"$home/log" 2>&1 9>&- &
    echo $! >"$home/pid"
  )
}

# program_of prints which of several programs, or which release, a server is to be.
program_of() {
  case $(kind_of "$1") in
    kafka) echo "Kafka $kafka_release" ;;
    redis | sentinel) echo "$redis_program" ;;
    *) echo "$1" ;;
  esac
}

setting() {
  local kind
  kind=$(kind_of "$1")
  case $kind in mariadb) echo MYSQL ;; sentinel) echo REDIS ;; *) echo "${kind^^}" ;; esac
}

await_ready() {
  local name=$1 deadline=$((SECONDS + wait_seconds))
  until ready "$name"; do
    runs "$(<"$dir/$name/pid")" || { tail -n 25 "$dir/$name/log" >&2; fail "$name ended while starting; its log is $dir/$name/log"; }
    ((SECONDS < deadline)) || { tail -n 25 "$dir/$name/log" >&2; fail "$name is not ready after ${wait_seconds}s"; }
    sleep 0.1
  done
}

# await WHAT COMMAND… waits until the command returns 0.
await() {
  local what=$1 deadline=$((SECONDS + wait_seconds))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || fail "after ${wait_seconds}s it is not so that $what"
    sleep 0.1
  done
}

ask_to_stop() {
  local pid
  pid=$(pid_of "$1")
  [[ -z $pid ]] || kill -TERM "$pid"
}

await_stopped() {
  local name=$1 pid deadline=$((SECONDS + wait_seconds))
  while pid=$(pid_of "$name") && [[ -n $pid ]]; do
    if ((SECONDS >= deadline)); then
      echo "servers: $name (pid $pid) did not stop in ${wait_seconds}s: killing it" >&2
      kill -KILL "$pid" || true
      deadline=$((SECONDS + wait_seconds))
    fi
    sleep 0.1
  done
  rm -f "$dir/$name/pid"
}
