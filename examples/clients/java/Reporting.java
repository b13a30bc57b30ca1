import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.function.BooleanSupplier;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Handles each delivery once, and reports on it, with the stock Java client.
 *
 * <p>The effect and the delivery's key are written in one transaction of your own database, here SQLite in memory. A copy of a delivery
 * finds its key there, and is only reported.
 *
 * <p>Environment: NOTYET_KAFKA_BROKERS, NOTYET_INTAKE, NOTYET_REPORTS, NOTYET_RESULTS, NOTYET_TARGET (see run.sh). As a program it
 * schedules one task, whose first attempt fails, and exits when that task has succeeded.
 */
public class Reporting {
    static final String BROKERS = env("NOTYET_KAFKA_BROKERS", "127.0.0.1:9092");
    static final String INTAKE = env("NOTYET_INTAKE", "notyet.intake");
    static final String REPORTS = env("NOTYET_REPORTS", "notyet.reports");
    static final String RESULTS = env("NOTYET_RESULTS", "notyet.results");
    static final String TARGET = env("NOTYET_TARGET", "notyet-clients-check");

    interface Work {
        void accept(Connection db, Map<String, String> headers, ConsumerRecord<String, String> record) throws Exception;
    }

    /** Asks for another attempt after a while. */
    static class Retry extends Exception {
        final Duration after;

        Retry(Duration after, String text) {
            super(text);
            this.after = after;
        }
    }

    record Report(Map<String, String> headers, String text) {
    }

    /** Does the work of a delivery unless it is done, and returns its report. */
    static Report handle(Connection db, Map<String, String> headers, ConsumerRecord<String, String> record, Work work) throws Exception {
        try (var insert = db.prepareStatement("INSERT INTO handled VALUES (?) ON CONFLICT DO NOTHING")) {
            insert.setString(1, headers.get("notyet-delivery"));
            if (insert.executeUpdate() == 1) { // otherwise it is a copy of a delivery that was handled
                work.accept(db, headers, record);
            }
            db.commit();
            return new Report(Map.of("notyet-status", "ok"), null);
        } catch (Retry e) {
            db.rollback();
            return new Report(Map.of("notyet-status", "retry", "notyet-retry-after", e.after.toMillis() + "ms"), e.getMessage());
        } catch (IllegalArgumentException e) { // no later attempt can succeed
            db.rollback();
            return new Report(Map.of("notyet-status", "fail"), e.getMessage());
        }
    }

    /** Commits a delivery when Kafka has its report. A crash before that brings the delivery again. */
    static void run(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer, Connection db, Work work,
            BooleanSupplier ended) throws Exception {
        consumer.subscribe(List.of(TARGET));
        while (!ended.getAsBoolean()) {
            for (var record : consumer.poll(Duration.ofMillis(500))) {
                Map<String, String> headers = new LinkedHashMap<>();
                record.headers().forEach(h -> headers.put(h.key(), new String(h.value(), StandardCharsets.UTF_8)));
                if (!headers.containsKey("notyet-delivery")) {
                    continue; // not from notyet
                }
                Report report = handle(db, headers, record, work);
                var out = new ProducerRecord<String, String>(REPORTS, null, report.text);
                add(out.headers(), "notyet-topic", record.topic());
                for (String name : List.of("notyet-id", "notyet-attempt", "notyet-delivery")) {
                    add(out.headers(), name, headers.get(name));
                }
                report.headers.forEach((name, value) -> add(out.headers(), name, value));
                producer.send(out).get();
            }
            consumer.commitSync();
        }
    }

    public static void main(String[] args) throws Exception {
        String name = "java-consumer-" + UUID.randomUUID();
        Map<String, Object> group = Map.of("bootstrap.servers", BROKERS, "group.id", name, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "isolation.level", "read_committed");
        try (var producer = new KafkaProducer<>(Map.of("bootstrap.servers", BROKERS), new StringSerializer(), new StringSerializer());
                var consumer = new KafkaConsumer<>(group, new StringDeserializer(), new StringDeserializer());
                var results = new KafkaConsumer<>(with(group, "group.id", name + "-results"), new StringDeserializer(), new StringDeserializer());
                var db = DriverManager.getConnection("jdbc:sqlite::memory:");
                var sql = db.createStatement()) {
            sql.execute("CREATE TABLE handled (delivery TEXT PRIMARY KEY)");
            sql.execute("CREATE TABLE effects (id TEXT, body TEXT)");
            db.setAutoCommit(false);
            var request = new ProducerRecord<>(INTAKE, name, "a reminder");
            Map.of("notyet-topic", TARGET, "notyet-id", name, "notyet-delay", "1s", "notyet-ack", "report")
                    .forEach((header, value) -> add(request.headers(), header, value));
            producer.send(request).get();

            results.subscribe(List.of(RESULTS));
            long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            var done = new ArrayList<Map.Entry<Map<String, String>, ConsumerRecord<String, String>>>();
            Work work = (database, headers, record) -> {
                if (!headers.get("notyet-id").equals(name)) {
                    return; // another program's
                }
                if (headers.get("notyet-attempt").equals("1")) {
                    throw new Retry(Duration.ofSeconds(1), "the card service is away");
                }
                try (var insert = database.prepareStatement("INSERT INTO effects VALUES (?, ?)")) {
                    insert.setString(1, headers.get("notyet-id"));
                    insert.setString(2, record.value());
                    insert.executeUpdate();
                }
                done.add(Map.entry(headers, record));
            };
            run(consumer, producer, db, work, () -> {
                check(System.nanoTime() < deadline, "waited 60 s in vain for a report to count");
                for (var event : results.poll(Duration.ofMillis(100))) {
                    if (name.equals(event.key())) {
                        String state = new String(event.headers().lastHeader("notyet-state").value(), StandardCharsets.UTF_8);
                        check(state.equals("succeeded"), "the task is " + state);
                        return true;
                    }
                }
                return false;
            });
            var copy = handle(db, done.get(0).getKey(), done.get(0).getValue(), work); // as it comes after a crash
            check(copy.headers.equals(Map.of("notyet-status", "ok")), "a copy has the report " + copy);
            try (var count = sql.executeQuery("SELECT count(*) FROM effects")) {
                check(count.next() && count.getInt(1) == 1, count.getInt(1) + " effects");
            }
        }
        System.out.println("java: reported a failure and a success, with one effect");
    }

    static void add(Headers headers, String name, String value) {
        headers.add(name, value.getBytes(StandardCharsets.UTF_8));
    }

    static Map<String, Object> with(Map<String, Object> settings, String key, Object value) {
        Map<String, Object> out = new LinkedHashMap<>(settings);
        out.put(key, value);
        return out;
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
