"""Handles each delivery once, and reports on it, with the stock Python client.

The effect and the delivery's key are written in one transaction of your own database, here a file of SQLite. A copy of a delivery
finds its key there, and is only reported.

Environment: NOTYET_KAFKA_BROKERS, NOTYET_INTAKE, NOTYET_REPORTS, NOTYET_RESULTS, NOTYET_TARGET (see run.sh). As a program it schedules
one task, whose first attempt fails, and exits when that task has succeeded.
"""

import os
import sqlite3
import sys
import tempfile
import time
import uuid

from confluent_kafka import Consumer, Producer

BROKERS = os.environ.get("NOTYET_KAFKA_BROKERS", "127.0.0.1:9092")
INTAKE = os.environ.get("NOTYET_INTAKE", "notyet.intake")
REPORTS = os.environ.get("NOTYET_REPORTS", "notyet.reports")
RESULTS = os.environ.get("NOTYET_RESULTS", "notyet.results")
TARGET = os.environ.get("NOTYET_TARGET", "notyet-clients-check")


class Retry(Exception):
    """Asks for another attempt after so many seconds."""

    def __init__(self, seconds, text):
        super().__init__(text)
        self.seconds = seconds


def open_database(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE IF NOT EXISTS handled (delivery TEXT PRIMARY KEY)")
    db.execute("CREATE TABLE IF NOT EXISTS effects (id TEXT, body BLOB)")
    return db


def handle(db, headers, message, work):
    """Does the work of a delivery unless it is done, and returns the headers and the text of its report."""
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO handled VALUES (?)", (headers["notyet-delivery"],))
        work(db, headers, message)
        db.execute("COMMIT")
    except sqlite3.IntegrityError:  # a copy of a delivery that was handled
        db.execute("ROLLBACK")
    except Retry as e:
        db.execute("ROLLBACK")
        return [("notyet-status", "retry"), ("notyet-retry-after", f"{e.seconds}s")], str(e)
    except ValueError as e:  # no later attempt can succeed
        db.execute("ROLLBACK")
        return [("notyet-status", "fail")], str(e)
    return [("notyet-status", "ok")], None


def run(consumer, producer, db, work, ended):
    """Commits a delivery when Kafka has its report. A crash before that brings the delivery again."""
    consumer.subscribe([TARGET])
    while not ended():
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            sys.exit(f"consuming {TARGET}: {message.error()}")
        headers = {name: value.decode() for name, value in message.headers() or [] if name.startswith("notyet-")}
        if "notyet-delivery" in headers:  # otherwise the record is not from notyet
            status, text = handle(db, headers, message, work)
            names = ("notyet-id", "notyet-attempt", "notyet-delivery")
            report = [("notyet-topic", message.topic()), *((n, headers[n]) for n in names), *status]
            failures = []
            producer.produce(REPORTS, value=text, headers=report, on_delivery=lambda e, _: failures.append(e) if e else None)
            if producer.flush(60) or failures:
                sys.exit(f"the report is not acknowledged: {failures}")
        consumer.commit(message, asynchronous=False)


def main():
    name = f"python-consumer-{uuid.uuid4()}"
    producer = Producer({"bootstrap.servers": BROKERS, "enable.idempotence": True, "partitioner": "murmur2_random", "log_level": 4})
    producer.produce(INTAKE, key=name, value="a reminder", headers=[
        ("notyet-topic", TARGET), ("notyet-id", name), ("notyet-delay", "1s"), ("notyet-ack", "report")])
    producer.flush(60)

    done = []

    def work(db, headers, message):
        if headers["notyet-id"] != name:
            return  # another program's
        if headers["notyet-attempt"] == "1":
            raise Retry(1, "the card service is away")
        db.execute("INSERT INTO effects VALUES (?, ?)", (headers["notyet-id"], message.value()))
        done.append((headers, message))

    group = {"bootstrap.servers": BROKERS, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False,
             "isolation.level": "read_committed", "log_level": 4}
    db = open_database(os.path.join(tempfile.mkdtemp(), "effects.db"))
    results = Consumer({**group, "group.id": name + "-results"})
    results.subscribe([RESULTS])
    deadline = time.monotonic() + 60

    def ended():
        for event in results.consume(1000, 0.1):  # others' events too
            if not event.error() and event.key() == name.encode():
                state = dict(event.headers())["notyet-state"]
                return state == b"succeeded" or sys.exit(f"python: the task is {state}")
        return time.monotonic() > deadline and sys.exit("python: waited 60 s in vain for a report to count")

    consumer = Consumer(group)
    run(consumer, producer, db, work, ended)
    consumer.close()
    results.close()
    report, _ = handle(db, *done[0], work)  # a copy, as it comes after a crash
    effects = db.execute("SELECT count(*) FROM effects").fetchone()[0]
    if effects != 1 or report != [("notyet-status", "ok")]:
        sys.exit(f"python: {effects} effects, and a copy has the report {report}")
    print("python: reported a failure and a success, with one effect")


if __name__ == "__main__":
    main()
