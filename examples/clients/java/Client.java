import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.function.Predicate;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Schedules, cancels and consumes with the stock Java client: nothing of notyet's is imported, only headers are written and read.
 *
 * <p>Environment: NOTYET_KAFKA_BROKERS, NOTYET_INTAKE, NOTYET_RESULTS, NOTYET_TARGET (see run.sh). Exit code 1 says what was wrong.
 */
public class Client {
    static final String BROKERS = env("NOTYET_KAFKA_BROKERS", "127.0.0.1:9092");
    static final String INTAKE = env("NOTYET_INTAKE", "notyet.intake");
    static final String RESULTS = env("NOTYET_RESULTS", "notyet.results");
    static final String TARGET = env("NOTYET_TARGET", "notyet-clients-check");
    static final int PAIRS = 200;
    static final Duration PATIENCE = Duration.ofSeconds(60);

    static final String RUN = "java-" + UUID.randomUUID();
    static final List<String> OWN = List.of("trace=" + RUN, "tag=a", "tag=b");

    public static void main(String[] args) throws Exception {
        createTarget();
        long start = System.currentTimeMillis();
        long lastDue = start + 10000;
        try (var producer = new KafkaProducer<>(Map.of("bootstrap.servers", BROKERS, "enable.idempotence", "true"),
                new StringSerializer(), new StringSerializer())) {
            request(producer, RUN, "first", "first", true, "notyet-delay=PT2S");
            request(producer, RUN, "cancelled", "cancelled", true, "notyet-delay=3s");
            request(producer, RUN, "last", "last", true, "notyet-at=" + lastDue);
            request(producer, RUN, "cancelled", null, false, "notyet-op=cancel");
            for (int i = 0; i < PAIRS; i++) { // each task has a key of its own, so the pairs are in all partitions
                request(producer, RUN + "-key-" + i, "pair-" + i, "pair", false, "notyet-delay=1h");
                request(producer, RUN + "-key-" + i, "pair-" + i, null, false, "notyet-op=cancel");
            }
        }

        List<String> delivered = new ArrayList<>();
        consume(TARGET, record -> {
            if (!RUN.equals(record.key())) {
                return false; // another run's
            }
            long due = checkDelivery(record);
            check(record.value().equals("last") ? due == lastDue : due >= start + 2000, record.value() + " has the due time " + due);
            delivered.add(record.value());
            return record.value().equals("last");
        });
        // One key, one partition: the cancelled one would have come before the last.
        check(delivered.equals(List.of("first", "last")), "delivered: " + delivered);

        Set<String> unanswered = new HashSet<>(Set.of(RUN + "-cancelled"));
        for (int i = 0; i < PAIRS; i++) {
            unanswered.add(RUN + "-pair-" + i);
        }
        consume(RESULTS, record -> {
            if (unanswered.remove(record.key())) {
                String state = text(record.headers().lastHeader("notyet-state"));
                check(state.equals("cancelled"), "the cancel of " + record.key() + " is answered " + state);
            }
            return unanswered.isEmpty();
        });
        System.out.println("java: scheduled, cancelled and consumed");
    }

    /** Asks first: some brokers, notyet dev among them, make a topic that a client asks for. */
    static void createTarget() throws Exception {
        try (var consumer = consumer()) {
            List<PartitionInfo> partitions = consumer.partitionsFor(TARGET);
            if (partitions != null && !partitions.isEmpty()) {
                return;
            }
        }
        try (var admin = Admin.create(Map.of("bootstrap.servers", BROKERS))) {
            admin.createTopics(List.of(new NewTopic(TARGET, Optional.of(4), Optional.empty()))).all().get();
        }
    }

    static KafkaConsumer<String, String> consumer() {
        return new KafkaConsumer<>(Map.of("bootstrap.servers", BROKERS, "group.id", RUN, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "isolation.level", "read_committed"), new StringDeserializer(), new StringDeserializer());
    }

    /** Sends a request and waits for Kafka's acknowledgement. One record key for all requests about a task keeps them in order. */
    static void request(KafkaProducer<String, String> producer, String key, String task, String value, boolean own, String setting) throws Exception {
        var record = new ProducerRecord<>(INTAKE, key, value);
        List<String> headers = new ArrayList<>(List.of("notyet-topic=" + TARGET, "notyet-id=" + RUN + "-" + task, setting));
        if (own) {
            headers.addAll(OWN);
        }
        for (String header : headers) {
            String[] pair = header.split("=", 2);
            record.headers().add(pair[0], pair[1].getBytes(StandardCharsets.UTF_8));
        }
        producer.send(record).get();
    }

    /** Reads a topic from its beginning until a record is the one. */
    static void consume(String topic, Predicate<ConsumerRecord<String, String>> done) {
        try (var consumer = consumer()) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (System.nanoTime() < deadline) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    if (done.test(record)) {
                        return;
                    }
                }
            }
        }
        check(false, "waited " + PATIENCE.toSeconds() + " s in vain for " + topic);
    }

    /** Checks key, value, headers and time of a delivery, and answers its due time. */
    static long checkDelivery(ConsumerRecord<String, String> record) {
        long at = System.currentTimeMillis();
        String task = record.value();
        List<String> headers = Arrays.stream(record.headers().toArray()).map(h -> h.key() + "=" + text(h)).toList();
        check(headers.size() == 7 && headers.subList(0, 3).equals(OWN), task + " has lost headers of its own: " + headers);
        check(headers.get(3).equals("notyet-id=" + RUN + "-" + task), task + " has the headers " + headers);
        check(headers.get(4).startsWith("notyet-due="), task + " has the headers " + headers);
        check(headers.get(5).equals("notyet-attempt=1"), task + " has the headers " + headers);
        check(headers.get(6).matches("notyet-delivery=.+"), task + " has the headers " + headers);
        long due = Long.parseLong(headers.get(4).substring("notyet-due=".length()));
        check(record.timestamp() >= due && at >= due, task + ", due at " + due + ", was published at " + record.timestamp() + " and there at " + at);
        return due;
    }

    static String text(Header header) {
        return new String(header.value(), StandardCharsets.UTF_8);
    }

    static String env(String name, String otherwise) {
        return Optional.ofNullable(System.getenv(name)).filter(v -> !v.isEmpty()).orElse(otherwise);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            System.err.println("java: " + what);
            System.exit(1);
        }
    }
}
