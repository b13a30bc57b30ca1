import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.springframework.kafka.KafkaException;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConsumerRecordRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Does what {@code @RetryableTopic(attempts, backoff = @Backoff(delay, multiplier))} does, without retry topics: a failed record is a
 * request to notyet, which delivers it to its own topic again. After the last attempt it goes to the topic's -dlt.
 */
record RetryLater(String intake, int attempts, long delayMs, long multiplier) {

  /** For the listeners' container factory: setCommonErrorHandler. */
  DefaultErrorHandler errorHandler(KafkaTemplate<byte[], byte[]> template) {
    ConsumerRecordRecoverer recoverer = (failed, cause) -> {
      try { // the offset is committed after this returns, so Kafka must have the copy
        template.send(again(failed, cause)).get(30, TimeUnit.SECONDS);
      } catch (Exception e) {
        throw new KafkaException("the record was not scheduled again, and stays uncommitted", e);
      }
    };
    return new DefaultErrorHandler(recoverer, new FixedBackOff(0, 0)); // no attempts in place
  }

  ProducerRecord<byte[], byte[]> again(ConsumerRecord<?, ?> failed, Exception cause) {
    int attempt = Integer.parseInt(header(failed, "retry-attempt", "1"));
    String origin = header(failed, "retry-origin", failed.topic() + "/" + failed.partition() + "/" + failed.offset());
    boolean last = attempt >= attempts;
    var out = new ProducerRecord<>(last ? failed.topic() + "-dlt" : intake, (byte[]) failed.key(), (byte[]) failed.value());
    for (Header h : failed.headers()) { // its own; notyet refuses headers of its last delivery
      if (!h.key().startsWith("notyet-") && !h.key().startsWith("retry-")) {
        out.headers().add(h);
      }
    }
    Throwable why = cause.getCause() == null ? cause : cause.getCause(); // Spring wraps what the listener threw
    set(out, "retry-origin", origin);
    set(out, "retry-attempt", Integer.toString(last ? attempt : attempt + 1));
    set(out, "retry-error", String.valueOf(why.getMessage()));
    if (!last) {
      set(out, "notyet-topic", failed.topic());
      set(out, "notyet-id", "retry/" + origin); // published twice after a crash, it is still one delivery
      set(out, "notyet-delay", delayMs * (long) Math.pow(multiplier, attempt - 1) + "ms");
      set(out, "notyet-events", "none");
    }
    return out;
  }

  private static void set(ProducerRecord<byte[], byte[]> to, String name, String value) {
    to.headers().add(name, value.getBytes(StandardCharsets.UTF_8));
  }

  static String header(ConsumerRecord<?, ?> of, String name, String otherwise) {
    Header h = of.headers().lastHeader(name);
    return h == null ? otherwise : new String(h.value(), StandardCharsets.UTF_8);
  }
}
