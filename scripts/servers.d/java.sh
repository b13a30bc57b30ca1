# Finding a Java that Kafka 4 accepts: 17 or newer.
# shellcheck shell=bash disable=SC2154

java_bin() {
  local candidate version
  for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
    [[ -x $candidate ]] || continue
    version=$("$candidate" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p;q')
    ((${version:-0} >= 17)) && { echo "$candidate"; return; }
  done
  return 1
}

# default-jre-headless is Java 17 on Debian 12 and newer after it; if an older Java hides it, install 17 by name.
need_java() {
  java_bin >/dev/null && return
  "$scripts/need" java=default-jre-headless
  java_bin >/dev/null || "$scripts/need" /usr/lib/jvm/java-17-openjdk-amd64=openjdk-17-jre-headless
  java_bin >/dev/null || fail "no Java 17 or newer found; set JAVA_HOME"
}
