// Schedules, cancels and consumes with the stock Node client: nothing of notyet's is imported, only headers are written and read.
//
// Environment: NOTYET_KAFKA_BROKERS, NOTYET_INTAKE, NOTYET_RESULTS, NOTYET_TARGET (see run.sh). Exit code 1 says what was wrong.
"use strict";

const { randomUUID } = require("node:crypto");
const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = require("kafkajs");

// notyet compresses deliveries with snappy, as many producers do. This client reads that with its codec only.
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const { NOTYET_KAFKA_BROKERS, NOTYET_INTAKE, NOTYET_RESULTS, NOTYET_TARGET } = process.env;
const BROKERS = (NOTYET_KAFKA_BROKERS || "127.0.0.1:9092").split(",");
const INTAKE = NOTYET_INTAKE || "notyet.intake";
const RESULTS = NOTYET_RESULTS || "notyet.results";
const TARGET = NOTYET_TARGET || "notyet-clients-check";
const PAIRS = 200;
const PATIENCE = 60_000; // ms

const RUN = `node-${randomUUID()}`;
const BYTES = Buffer.from([0xff, 0x00, 0x62]); // not UTF-8: passed through all the same
const OWN = { trace: RUN, tag: [Buffer.from("a"), BYTES] }; // this client has a repeated header as an array

const kafka = new Kafka({ clientId: RUN, brokers: BROKERS, logLevel: logLevel.ERROR });

function check(holds, what) {
  if (!holds) throw new Error(what);
}

async function createTarget() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: TARGET, numPartitions: 4 }] }); // false if it is there
  await admin.disconnect();
}

// Reads the topic from its beginning until done(message) is true.
async function consume(topic, done) {
  const consumer = kafka.consumer({ groupId: `${RUN}-${topic}` }); // reads what is committed only, by default
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let timer;
  try {
    await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`waited ${PATIENCE / 1000} s in vain for ${topic}`)), PATIENCE);
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ message }) => {
            try {
              if (done(message)) resolve();
            } catch (wrong) {
              reject(wrong);
            }
          },
        })
        .catch(reject);
    });
  } finally {
    clearTimeout(timer);
    await consumer.disconnect();
  }
}

function checkDelivery(message, task, due) {
  const at = Date.now();
  const headers = message.headers;
  check(message.value.toString() === task, `${task} has the value ${message.value}`);
  const names = Object.keys(headers).join(" ");
  check(names === "trace tag notyet-id notyet-due notyet-attempt notyet-delivery", `${task} has the headers ${names}`);
  check(headers.trace.toString() === RUN, `${task} has lost its header trace: ${headers.trace}`);
  check(headers.tag.length === 2 && headers.tag[0].toString() === "a" && BYTES.equals(headers.tag[1]), `${task} has lost a header tag: ${headers.tag}`);
  const got = Number(headers["notyet-due"].toString());
  check(headers["notyet-id"].toString() === `${RUN}-${task}`, `${task} is delivered as ${headers["notyet-id"]}`);
  check(due(got), `${task} has the due time ${got}`);
  check(headers["notyet-attempt"].toString() === "1" && headers["notyet-delivery"].length > 0, `${task} is attempt ${headers["notyet-attempt"]}`);
  check(Number(message.timestamp) >= got && at >= got, `${task}, due at ${got}, was published at ${message.timestamp} and there at ${at}`);
}

async function main() {
  await createTarget();
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner }); // Java's, by the key
  await producer.connect();
  const start = Date.now();
  const lastDue = start + 10000;
  const task = (name, headers) => ({ "notyet-topic": TARGET, "notyet-id": `${RUN}-${name}`, ...headers });
  const pairs = Array.from({ length: PAIRS }, (_, i) => [`${RUN}-key-${i}`, `pair-${i}`]); // keys in all partitions
  // One record key for all requests about a task keeps them in order.
  await producer.send({
    topic: INTAKE,
    messages: [
      { key: RUN, value: "first", headers: task("first", { "notyet-delay": "PT2S", ...OWN }) },
      { key: RUN, value: "cancelled", headers: task("cancelled", { "notyet-delay": "3s", ...OWN }) },
      { key: RUN, value: "last", headers: task("last", { "notyet-at": String(lastDue), ...OWN }) },
      { key: RUN, value: null, headers: task("cancelled", { "notyet-op": "cancel" }) },
      ...pairs.flatMap(([key, name]) => [
        { key, value: "pair", headers: task(name, { "notyet-delay": "1h" }) },
        { key, value: null, headers: task(name, { "notyet-op": "cancel" }) },
      ]),
    ],
  });
  await producer.disconnect();

  const delivered = [];
  const due = { first: (at) => at >= start + 2000, last: (at) => at === lastDue };
  await consume(TARGET, (message) => {
    if (String(message.key) !== RUN) return false; // another run's
    const name = String(message.value);
    checkDelivery(message, name, due[name] || (() => false));
    delivered.push(name);
    return name === "last";
  });
  check(delivered.join() === "first,last", `delivered: ${delivered}`); // one key, one partition: the cancelled one would have come before the last

  const unanswered = new Set(["cancelled", ...pairs.map(([, name]) => name)].map((name) => `${RUN}-${name}`));
  await consume(RESULTS, (message) => {
    if (unanswered.delete(String(message.key))) {
      const state = String(message.headers["notyet-state"]);
      check(state === "cancelled", `the cancel of ${message.key} is answered ${state}`);
    }
    return unanswered.size === 0;
  });
  console.log("node: scheduled, cancelled and consumed");
}

main().catch((wrong) => {
  console.error(`node: ${wrong.message}`);
  process.exit(1);
});
