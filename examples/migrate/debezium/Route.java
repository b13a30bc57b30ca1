import io.debezium.transforms.outbox.EventRouter;
import java.io.FileReader;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.converters.ByteArrayConverter;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.StringConverter;

/**
 * Sends two rows, as Debezium's connectors give them, through the routers and converters of connector.properties, and prints the records
 * that Kafka Connect would write: topic, key and value, then a line for each header, values in base64.
 */
class Route {
  public static void main(String[] args) throws Exception {
    Properties file = new Properties();
    try (FileReader in = new FileReader(args[0])) {
      file.load(in);
    }
    Struct schedule = row(columns("due_ms", Schema.INT64_SCHEMA));
    schedule.put("due_ms", Long.parseLong(args[1])).put("payload", new byte[] {'{', '}', 0, (byte) 0xff}).put("version", 1L);
    print(routed(file, "schedule", "server.shop.notyet_schedules", schedule));
    Struct cancel = row(columns("op", Schema.STRING_SCHEMA));
    cancel.put("op", "cancel").put("version", 2L);
    print(routed(file, "cancel", "server.shop.notyet_cancels", cancel));
  }

  static Schema columns(String other, Schema type) {
    return SchemaBuilder.struct().name("row")
        .field("id", Schema.STRING_SCHEMA).field("intake", Schema.STRING_SCHEMA).field("record_key", Schema.STRING_SCHEMA).field("topic", Schema.STRING_SCHEMA)
        .field("task_id", Schema.STRING_SCHEMA).field("version", Schema.INT64_SCHEMA).field(other, type).field("payload", Schema.OPTIONAL_BYTES_SCHEMA).build();
  }

  static Struct row(Schema columns) {
    return new Struct(columns).put("id", "4d47e190-0402-4048-bc2c-89dd54343cdc").put("intake", "notyet.intake").put("record_key", "customer-7")
        .put("topic", "reminders").put("task_id", "order-4711");
  }

  /** What a connector makes of an INSERT, after the router. */
  static SourceRecord routed(Properties file, String router, String table, Struct row) {
    Schema envelope = SchemaBuilder.struct().name(table + ".Envelope").field("before", SchemaBuilder.struct().name("none").optional().build())
        .field("after", row.schema()).field("source", SchemaBuilder.struct().name("source").field("ts_ms", Schema.INT64_SCHEMA).build())
        .field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.INT64_SCHEMA).build();
    Struct source = new Struct(envelope.field("source").schema()).put("ts_ms", 1L);
    Struct change = new Struct(envelope).put("after", row).put("source", source).put("op", "c").put("ts_ms", 1L);
    Map<String, String> config = new HashMap<>();
    String prefix = "transforms." + router + ".";
    for (String name : file.stringPropertyNames()) {
      if (name.startsWith(prefix) && !name.endsWith(".type") && !name.endsWith(".predicate")) {
        config.put(name.substring(prefix.length()), file.getProperty(name));
      }
    }
    try (EventRouter<SourceRecord> smt = new EventRouter<>()) {
      smt.configure(config);
      return smt.apply(new SourceRecord(Map.of(), Map.of(), table, 0, Schema.STRING_SCHEMA, "pk", envelope, change));
    }
  }

  static void print(SourceRecord r) {
    StringConverter keys = new StringConverter();
    keys.configure(Map.of(), true);
    StringConverter headers = new StringConverter();
    headers.configure(Map.of(), false);
    ByteArrayConverter values = new ByteArrayConverter();
    values.configure(Map.of(), false);
    System.out.println("record " + r.topic() + " " + text(keys.fromConnectData(r.topic(), r.keySchema(), r.key())) + " "
        + text(values.fromConnectData(r.topic(), r.valueSchema(), r.value())));
    r.headers().forEach(h -> System.out.println("header " + h.key() + " " + text(headers.fromConnectHeader(r.topic(), h.key(), h.schema(), h.value()))));
  }

  static String text(byte[] b) {
    return b == null ? "null" : "=" + Base64.getEncoder().encodeToString(b);
  }
}
