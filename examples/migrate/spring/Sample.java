import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;

/**
 * A Spring program whose listener fails. One payment works at the third attempt, one never, one at once.
 *
 * <p>Environment: NOTYET_KAFKA_BROKERS, NOTYET_INTAKE, SAMPLE_PREFIX. Exit code 1: not all has come in time.
 */
@Configuration(proxyBeanMethods = false)
@EnableKafka
public class Sample {
  static final String BROKERS = env("NOTYET_KAFKA_BROKERS", "127.0.0.1:9092");
  static final String INTAKE = env("NOTYET_INTAKE", "notyet.intake");
  static final String PAYMENTS = env("SAMPLE_PREFIX", "sample-") + UUID.randomUUID() + ".payments";
  static final CountDownLatch ENDED = new CountDownLatch(3);

  static String env(String name, String otherwise) {
    String v = System.getenv(name);
    return v == null || v.isEmpty() ? otherwise : v;
  }

  public static void main(String[] args) throws Exception {
    System.setProperty("payments", PAYMENTS);
    try (var context = new AnnotationConfigApplicationContext(Sample.class)) {
      var template = context.getBean(KafkaTemplate.class);
      for (String payment : new String[] {"busy twice", "never works", "works"}) {
        template.send(PAYMENTS, payment.getBytes(StandardCharsets.UTF_8), payment.getBytes(StandardCharsets.UTF_8)).get();
      }
      if (!ENDED.await(60, TimeUnit.SECONDS)) {
        System.err.println("spring: not all has come in time");
        System.exit(1);
      }
    }
  }

  @KafkaListener(topics = "${payments}", groupId = "${payments}")
  public void charge(ConsumerRecord<byte[], byte[]> payment) {
    String text = new String(payment.value(), StandardCharsets.UTF_8);
    int attempt = Integer.parseInt(RetryLater.header(payment, "retry-attempt", "1"));
    if (text.equals("never works") || text.equals("busy twice") && attempt < 3) {
      System.out.println(text + " failed at attempt " + attempt);
      throw new IllegalStateException("bank busy");
    }
    System.out.println(text + " is charged at attempt " + attempt);
    ENDED.countDown();
  }

  @KafkaListener(topics = "${payments}-dlt", groupId = "${payments}-dlt")
  public void dead(ConsumerRecord<byte[], byte[]> payment) {
    System.out.println(new String(payment.value(), StandardCharsets.UTF_8) + " is a dead letter after attempt "
        + RetryLater.header(payment, "retry-attempt", "") + ": " + RetryLater.header(payment, "retry-error", ""));
    ENDED.countDown();
  }

  @Bean
  KafkaTemplate<byte[], byte[]> template() {
    return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, BROKERS),
        new ByteArraySerializer(), new ByteArraySerializer()));
  }

  @Bean
  ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory(KafkaTemplate<byte[], byte[]> template) {
    var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
    factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(
        Map.of(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, BROKERS, ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest"),
        new ByteArrayDeserializer(), new ByteArrayDeserializer()));
    factory.setCommonErrorHandler(new RetryLater(INTAKE, 4, 200, 2).errorHandler(template)); // instead of @RetryableTopic
    return factory;
  }

  @Bean
  KafkaAdmin admin() {
    return new KafkaAdmin(Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, BROKERS));
  }

  @Bean
  KafkaAdmin.NewTopics topics() {
    return new KafkaAdmin.NewTopics(new NewTopic(PAYMENTS, 1, (short) 1), new NewTopic(PAYMENTS + "-dlt", 1, (short) 1));
  }
}
