#!/usr/bin/env bash
# Builds and runs the Java programs of the migration guides.
#
#   examples/migrate/run.sh spring                 a Spring program; NOTYET_KAFKA_BROKERS, NOTYET_INTAKE, SAMPLE_PREFIX
#   examples/migrate/run.sh debezium DUE           what Debezium's outbox router makes of two rows; DUE in Unix ms
#
# A JDK and Maven are installed with apt where they are missing, libraries into ${XDG_CACHE_HOME:-$HOME/.cache}/notyet/migrate.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scripts=$here/../../scripts
cache=${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/notyet/migrate

# libraries DIR prints the folder with what its pom.xml names.
libraries() {
  local lib tmp
  lib=$cache/$1-$(sha256sum <"$here/$1/pom.xml" | head -c 12)
  if [[ ! -d $lib ]]; then
    "$scripts/need" mvn=maven /etc/ssl/certs/ca-certificates.crt=ca-certificates
    mkdir -p "$cache"
    tmp=$(mktemp -d "$cache/fetch.XXXXXX")
    "$scripts/retry" mvn -B -q -C -f "$here/$1/pom.xml" -Dmaven.repo.local="$tmp/m2" \
      org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$tmp/out" </dev/null >&2
    mv -T "$tmp/out" "$lib" 2>/dev/null || [[ -d $lib ]] # the loser of a race finds the winner's
    rm -rf "$tmp"
  fi
  echo "$lib"
}

"$scripts/need" javac=default-jdk-headless
case ${1:-} in
  spring)
    lib=$(libraries spring)
    classes=$(mktemp -d)
    trap 'rm -rf "$classes"' EXIT
    javac -nowarn -Xlint:-unchecked -parameters -cp "$lib/*" -d "$classes" "$here"/spring/*.java
    java -cp "$classes:$lib/*" Sample
    ;;
  debezium)
    lib=$(libraries debezium)
    java -cp "$lib/*" "$here/debezium/Route.java" "$here/debezium/connector.properties" "$2"
    ;;
  *)
    echo "usage: run.sh spring | debezium DUE" >&2
    exit 2
    ;;
esac
