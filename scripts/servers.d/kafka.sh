# Apache Kafka: KRaft nodes that are broker and controller; one, or a cluster's three. The jars come through Maven, once, into the cache.
# shellcheck shell=bash disable=SC2034,SC2154

kafka_port=${SERVERS_KAFKA_PORT:-19092}
# Only to fetch the jars.
kafka_needs=(mvn=maven /etc/ssl/certs/ca-certificates.crt=ca-certificates)
# kafka_beside PORT N: a node's other port. Far from the ports people pick next to another set's, and inside the range for every broker port.
kafka_beside() { echo $(($1 + (kafka_port > 65000 ? -$2 : $2))); }
kafka_controller_port() { kafka_beside "$(port_of "$1")" 517; }
# Where users sign in (SCRAM). What they may do is for ACLs to say; whoever comes to the other listener may do everything.
kafka_users_port() { kafka_beside "$(port_of "$1")" 518; }
if [[ $cluster ]]; then kafka_copies=3 kafka_in_sync=2 kafka_heap=320m; else kafka_copies=1 kafka_in_sync=1 kafka_heap=512m; fi
kafka_session_ms=${SERVERS_KAFKA_SESSION_MS:-9000}
kafka_release=${SERVERS_KAFKA:-4.4}
kafka_sums=$scripts/servers.d/kafka-$kafka_release.sha256
[[ -e $kafka_sums ]] || { echo "servers: SERVERS_KAFKA is '$kafka_release': write 4.3 or 4.4" >&2; exit 2; }
# A new pom or checksum list is a new folder.
kafka_lib=$cache/kafka-$kafka_release-$(cat "$scripts/servers.d/kafka.pom.xml" "$kafka_sums" | sha256sum | head -c 12)

fetch_kafka() {
  [[ -d $kafka_lib ]] && return
  "$scripts/need" "${kafka_needs[@]}"
  echo "servers: fetching Kafka's jars into $kafka_lib (44 MB, once)" >&2
  local tmp version
  version=$(sed -n 's/.* kafka_2.13-\(.*\)\.jar$/\1/p' "$kafka_sums")
  mkdir -p "$cache"
  tmp=$(mktemp -d "$cache/kafka-fetch.XXXXXX")
  # shellcheck disable=SC2064  # now, as $tmp is local
  trap "rm -rf '$tmp'" EXIT
  "$scripts/retry" mvn -B -q -C -f "$scripts/servers.d/kafka.pom.xml" -Dkafka.version="$version" -Dmaven.repo.local="$tmp/m2" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$tmp/lib" >&2 </dev/null ||
    fail "fetching Kafka's jars failed"
  (cd "$tmp/lib" && sha256sum --quiet --strict -c "$kafka_sums") >&2 || fail "Kafka's jars are not what ${kafka_sums##*/} says"
  # Renamed last: a folder with this name is complete. If two sets race, the loser uses the winner's.
  mv -T "$tmp/lib" "$kafka_lib" 2>/dev/null || [[ -d $kafka_lib ]]
}

kafka_prepare() {
  local java controller users newest
  newest=$(printf '%s\n' "$kafka_release" "$(cat "$home/formatted" 2>/dev/null)" | sort -V | tail -n 1)
  [[ $newest == "$kafka_release" ]] || fail "the data in $home is of Kafka $newest: set SERVERS_DIR for another set, or SERVERS_EMPTY=1"
  java=$(java_bin)
  controller=$(kafka_controller_port "$name")
  users=$(kafka_users_port "$name")
  ! listening "$controller" || fail "something else listens on 127.0.0.1:$controller, where Kafka's controller goes: change SERVERS_KAFKA_PORT"
  ! listening "$users" || fail "something else listens on 127.0.0.1:$users, where Kafka's users sign in: change SERVERS_KAFKA_PORT"
  kafka_settings >"$home/server.properties"
  if [[ ! -e $home/formatted ]]; then
    rm -rf "$home/data"
    [[ -s $dir/kafka-id ]] || kafka_cluster_id >"$dir/kafka-id"
    "$java" -Xmx128m -cp "$kafka_lib/*" kafka.tools.StorageTool format -t "$(<"$dir/kafka-id")" -c "$home/server.properties" >>"$home/log" 2>&1 ||
      { tail -n 25 "$home/log" >&2; fail "formatting Kafka's storage failed"; }
    echo "$kafka_release" >"$home/formatted"
  fi
  run=("$java" "-Xms$kafka_heap" "-Xmx$kafka_heap" -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:+ExitOnOutOfMemoryError -Djava.awt.headless=true
    "-Dlog4j2.configurationFile=$scripts/servers.d/kafka.log4j2.properties" -cp "$kafka_lib/*" kafka.Kafka "$home/server.properties")
}

# 16 random bytes in URL-safe base64, as Kafka's own random-uuid prints; no '-', which it avoids in front.
kafka_cluster_id() { head -c 16 /dev/urandom | base64 | tr '+/' '__' | tr -d '='; }

kafka_voters() {
  local each voters=()
  for each in $(nodes_of kafka); do voters+=("$(number_of "$each")@127.0.0.1:$(kafka_controller_port "$each")"); done
  (IFS=,; echo "${voters[*]}")
}

kafka_settings() {
  cat <<SETTINGS
process.roles=broker,controller
node.id=$(number_of "$name")
controller.quorum.voters=$(kafka_voters)
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,SASL_PLAINTEXT://127.0.0.1:$users,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port,SASL_PLAINTEXT://127.0.0.1:$users
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs=$home/data
auto.create.topics.enable=false
delete.topic.enable=true
default.replication.factor=$kafka_copies
min.insync.replicas=$kafka_in_sync
offsets.topic.replication.factor=$kafka_copies
transaction.state.log.replication.factor=$kafka_copies
transaction.state.log.min.isr=$kafka_in_sync
share.coordinator.state.topic.replication.factor=$kafka_copies
share.coordinator.state.topic.min.isr=$kafka_in_sync
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=$kafka_session_ms
# 50 each by default: creating them is the longest part of a first test.
offsets.topic.num.partitions=8
transaction.state.log.num.partitions=8
SETTINGS
}
