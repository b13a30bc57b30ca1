"""Schedules, cancels and consumes with the stock Python client: nothing of notyet's is imported, only headers are written and read.

Environment: NOTYET_KAFKA_BROKERS, NOTYET_INTAKE, NOTYET_RESULTS, NOTYET_TARGET (see run.sh). Exit code 1 says what was wrong.
"""

import os
import sys
import time
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BROKERS = os.environ.get("NOTYET_KAFKA_BROKERS", "127.0.0.1:9092")
INTAKE = os.environ.get("NOTYET_INTAKE", "notyet.intake")
RESULTS = os.environ.get("NOTYET_RESULTS", "notyet.results")
TARGET = os.environ.get("NOTYET_TARGET", "notyet-clients-check")
PAIRS = 200
PATIENCE = 60  # seconds

RUN = f"python-{uuid.uuid4()}"
OWN = [("trace", RUN.encode()), ("tag", b"a"), ("tag", b"\xff\x00b")]  # repeated and not UTF-8: passed through all the same


def now_ms():
    return time.time_ns() // 1_000_000


def check(holds, what):
    if not holds:
        sys.exit(f"python: {what}")


def create_target():
    admin = AdminClient({"bootstrap.servers": BROKERS, "log_level": 4})
    for future in admin.create_topics([NewTopic(TARGET, 4)]).values():
        try:
            future.result(timeout=30)
        except KafkaException as e:
            check(e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, f"creating {TARGET}: {e}")


def request(producer, key, value, headers):
    def acknowledged(error, _):
        check(error is None, f"sending a request: {error}")

    producer.produce(INTAKE, key=key, value=value, headers=headers, on_delivery=acknowledged)


def consume(topic, done):
    """Reads the topic from its beginning until done(message) is true."""
    consumer = Consumer({"bootstrap.servers": BROKERS, "group.id": RUN, "auto.offset.reset": "earliest",
                         "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 4})
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            check(message.error() is None, f"consuming {topic}: {message.error()}")
            if done(message):
                return
        sys.exit(f"python: waited {PATIENCE} s in vain for {topic}")
    finally:
        consumer.close()


def check_delivery(message, task, due):
    at = now_ms()
    headers = message.headers()
    check(message.key() == RUN.encode(), f"{task} has the key {message.key()}")
    check(message.value() == task.encode(), f"{task} has the value {message.value()}")
    check(headers[:3] == OWN, f"{task} has lost headers of its own: {headers}")
    names = [name for name, _ in headers[3:]]
    check(names == ["notyet-id", "notyet-due", "notyet-attempt", "notyet-delivery"], f"{task} has the headers {names}")
    ident, got, attempt, delivery = (value.decode() for _, value in headers[3:])
    check(ident == f"{RUN}-{task}", f"{task} is delivered as {ident}")
    check(due(int(got)), f"{task} has the due time {got}")
    check(attempt == "1" and delivery, f"{task} is attempt {attempt}, delivery {delivery!r}")
    check(message.timestamp()[1] >= int(got) and at >= int(got), f"{task}, due at {got}, was published at {message.timestamp()[1]} and there at {at}")


def main():
    create_target()
    producer = Producer({"bootstrap.servers": BROKERS, "enable.idempotence": True, "partitioner": "murmur2_random", "log_level": 4})
    start = now_ms()
    last_due = start + 10000

    def task(name):
        return [("notyet-topic", TARGET), ("notyet-id", f"{RUN}-{name}")]

    # One record key for all requests about a task keeps them in order, beside those of Java and Go clients too.
    request(producer, RUN, "first", [*task("first"), ("notyet-delay", "PT2S"), *OWN])
    request(producer, RUN, "cancelled", [*task("cancelled"), ("notyet-delay", "3s"), *OWN])
    request(producer, RUN, "last", [*task("last"), ("notyet-at", str(last_due)), *OWN])
    request(producer, RUN, None, [*task("cancelled"), ("notyet-op", "cancel")])
    for i in range(PAIRS):  # each task has a key of its own, so the pairs are in all partitions
        request(producer, f"{RUN}-key-{i}", "pair", [*task(f"pair-{i}"), ("notyet-delay", "1h")])
        request(producer, f"{RUN}-key-{i}", None, [*task(f"pair-{i}"), ("notyet-op", "cancel")])
    check(producer.flush(PATIENCE) == 0, "requests are not acknowledged")

    delivered = []

    def on_delivery(message):
        name = (message.value() or b"").decode(errors="replace")
        if message.key() != RUN.encode():
            return False  # another run's
        check_delivery(message, name, {"first": lambda due: due >= start + 2000, "last": lambda due: due == last_due}.get(name, lambda _: False))
        delivered.append(name)
        return name == "last"

    consume(TARGET, on_delivery)
    check(delivered == ["first", "last"], f"delivered: {delivered}")  # one key, one partition: the cancelled one would have come before the last

    unanswered = {f"{RUN}-{name}".encode() for name in ["cancelled", *(f"pair-{i}" for i in range(PAIRS))]}

    def on_event(message):
        if message.key() in unanswered:
            state = dict(message.headers())["notyet-state"]
            check(state == b"cancelled", f"the cancel of {message.key()} is answered {state}")
            unanswered.remove(message.key())
        return not unanswered

    consume(RESULTS, on_event)
    print("python: scheduled, cancelled and consumed")


if __name__ == "__main__":
    main()
