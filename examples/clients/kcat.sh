#!/usr/bin/env bash
# Schedules, cancels and consumes with kcat. NOTYET_TARGET must exist, or the broker must create topics by itself: kcat cannot.
# Environment: see run.sh. Exit code 1 says what was wrong.
set -euo pipefail

brokers=${NOTYET_KAFKA_BROKERS:-127.0.0.1:9092}
intake=${NOTYET_INTAKE:-notyet.intake}
results=${NOTYET_RESULTS:-notyet.results}
target=${NOTYET_TARGET:-notyet-clients-check}
pairs=200
patience=60 # seconds

run=kcat-$(cat /proc/sys/kernel/random/uuid)
own=(-H "trace=$run" -H tag=a -H "tag=b c")

fail() { echo "kcat: $*" >&2; exit 1; }
now_ms() { date +%s%3N; }

# request KEY VALUE HEADER… sends one request. One record key for all requests about a task keeps them in order.
request() {
  local key=$1 value=$2
  shift 2
  printf '%s' "$value" | kcat -P -q -b "$brokers" -t "$intake" -k "$key" -X topic.partitioner=murmur2_random -X enable.idempotence=true "$@" || fail "the request $value is not acknowledged"
}

start=$(now_ms)
last_due=$((start + 10000))
request "$run" first -H "notyet-topic=$target" -H "notyet-id=$run-first" -H notyet-delay=PT2S "${own[@]}"
request "$run" cancelled -H "notyet-topic=$target" -H "notyet-id=$run-cancelled" -H notyet-delay=3s "${own[@]}"
request "$run" last -H "notyet-topic=$target" -H "notyet-id=$run-last" -H "notyet-at=$last_due" "${own[@]}"
# kcat sends nothing for empty input; a cancel's value is ignored.
request "$run" none -H notyet-op=cancel -H "notyet-topic=$target" -H "notyet-id=$run-cancelled"

# consume TOPIC FROM FORMAT prints a topic until it is killed.
consume() { exec timeout "$patience" kcat -C -q -u -b "$brokers" -t "$1" -o "$2" -X isolation.level=read_committed -f "$3"; }
reader=
seen_enough() { [[ ! $reader ]] || kill "$reader" 2>/dev/null || true; }
trap seen_enough EXIT

# Not from a time: where nothing is as young, kcat first learns this and then asks for the end, behind what came between.
exec {deliveries}< <(consume "$target" beginning '%k|%s|%T|%h\n')
reader=$!
delivered=
while IFS='|' read -r key value published headers; do
  at=$(now_ms)
  [[ $key == "$run" ]] || continue # another run's
  [[ $headers =~ ^trace=$run,tag=a,tag=b\ c,notyet-id=$run-([a-z]+),notyet-due=([0-9]+),notyet-attempt=1,notyet-delivery=[A-Za-z0-9_-]+$ ]] ||
    fail "$value is delivered with the headers $headers"
  due=${BASH_REMATCH[2]}
  [[ $value == "${BASH_REMATCH[1]}" ]] || fail "${BASH_REMATCH[1]} has the value $value"
  ((published >= due && at >= due)) || fail "$value, due at $due, was published at $published and there at $at"
  delivered+="$value "
  case $value in
    first) ((due >= start + 2000)) || fail "first is due at $due, less than 2 s after $start" ;;
    last)
      ((due == last_due)) || fail "last is due at $due instead of $last_due"
      break
      ;;
  esac
done <&"$deliveries"
seen_enough
# One key, one partition: the cancelled one would have come before the last.
[[ $delivered == "first last " ]] || fail "delivered within $patience s: ${delivered:-nothing}"

# Each task has a key of its own, so the pairs are in all partitions.
for ((i = 0; i < pairs; i++)); do
  about=(-H "notyet-topic=$target" -H "notyet-id=$run-pair-$i")
  request "$run-key-$i" pair -H notyet-delay=1h "${about[@]}"
  request "$run-key-$i" none -H notyet-op=cancel "${about[@]}"
done

exec {events}< <(consume "$results" "s@$((start - 60000))" '%k|%h\n')
reader=$!
declare -A answers=()
while IFS='|' read -r key headers; do
  [[ $key == "$run-cancelled" || $key == "$run-pair-"* ]] || continue
  [[ ,$headers, == *,notyet-state=cancelled,* ]] || fail "the cancel of $key is answered with $headers"
  answers[$key]=yes
  ((${#answers[@]} <= pairs)) || break # with that of the first cancelled task
done <&"$events"
((${#answers[@]} == pairs + 1)) || fail "${#answers[@]} of $((pairs + 1)) cancels were answered within $patience s"
echo "kcat: scheduled, cancelled and consumed"
