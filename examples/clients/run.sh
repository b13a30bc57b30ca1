#!/usr/bin/env bash
# Runs stock Kafka clients against a running notyet: each schedules, cancels and consumes by headers alone, and checks what it gets.
# In Python and Java it also reports.
#
#   examples/clients/run.sh [kcat|python|java|node]…      none means all
#
#   NOTYET_KAFKA_BROKERS   127.0.0.1:9092, where notyet dev listens
#   NOTYET_INTAKE          notyet.intake
#   NOTYET_REPORTS         notyet.reports
#   NOTYET_RESULTS         notyet.results
#   NOTYET_TARGET          notyet-clients-check    made by the Python, Java and Node clients if it is not there
#
# Exit code 1 if any of them fails. What they need is installed once: Debian's packages with apt, everything else into
# ${XDG_CACHE_HOME:-$HOME/.cache}/notyet/clients. The clocks of this machine and of notyet's must agree.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scripts=$here/../../scripts
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/notyet/clients

# once DIR COMMAND… has the command fill a folder, which gets its name only when it is whole.
once() {
  local dir=$1 tmp
  shift
  [[ ! -d $dir ]] || return 0
  mkdir -p "$cache"
  tmp=$(mktemp -d "$cache/fetch.XXXXXX")
  echo "clients: installing into $dir (once)" >&2
  if ! "$@" "$tmp" >&2; then
    rm -rf "$tmp"
    return 1
  fi
  # The loser of a race finds the winner's.
  mv -T "$tmp/out" "$dir" 2>/dev/null || [[ -d $dir ]] && rm -rf "$tmp"
}

digest() { cat "$@" | sha256sum | head -c 12; }

run_kcat() {
  "$scripts/need" kcat=kcat
  "$here/kcat.sh"
}

fetch_python() { "$scripts/retry" python3 -m pip install --quiet --disable-pip-version-check --target "$1/out" -r "$here/requirements.txt"; }

# Into a folder of its own, by version of Python: neither the system's packages nor a virtual environment are needed.
run_python() {
  local lib
  "$scripts/need" python3=python3
  python3 -m pip --version >/dev/null 2>&1 || "$scripts/need" /usr/share/doc/python3-pip=python3-pip
  lib=$cache/python-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$(digest "$here/requirements.txt")
  once "$lib" fetch_python || return
  PYTHONPATH=$lib python3 "$here/client.py"
  PYTHONPATH=$lib python3 "$here/consumer.py"
}

fetch_java() {
  "$scripts/need" mvn=maven /etc/ssl/certs/ca-certificates.crt=ca-certificates
  "$scripts/retry" mvn -B -q -C -f "$here/java/pom.xml" -Dmaven.repo.local="$1/m2" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$1/out" </dev/null
}

run_java() {
  local lib
  "$scripts/need" javac=default-jdk-headless
  lib=$cache/java-$(digest "$here/java/pom.xml")
  once "$lib" fetch_java || return
  java -cp "$lib/*" "$here/java/Client.java"
  java --enable-native-access=ALL-UNNAMED -cp "$lib/*" "$here/java/Reporting.java"
}

fetch_node() {
  cp "$here/node/package.json" "$here/node/package-lock.json" "$1"
  "$scripts/retry" npm ci --silent --no-audit --no-fund --prefix "$1"
  mv "$1/node_modules" "$1/out"
}

run_node() {
  local lib
  "$scripts/need" node=nodejs npm=npm
  lib=$cache/node-$(digest "$here/node/package-lock.json")
  once "$lib" fetch_node || return
  NODE_PATH=$lib node "$here/node/client.js"
}

(($#)) || set -- python java node kcat # the last one needs a topic that the others make
failed=()
for client in "$@"; do
  case $client in
    kcat | python | java | node) ;;
    *)
      echo "clients: $client is none of kcat, python, java, node" >&2
      exit 2
      ;;
  esac
  (set -e; "run_$client") || failed+=("$client")
done
if ((${#failed[@]})); then
  echo "clients: failed: ${failed[*]}" >&2
  exit 1
fi
