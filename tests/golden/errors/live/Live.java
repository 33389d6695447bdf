import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Makes a state of a transactional producer, and prints the exception: `Live BOOTSTRAP STATE ID`. */
public class Live {
    static String bootstrap;

    static KafkaProducer<byte[], byte[]> producer(String id, int timeoutMs) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("client.id", "java-1");
        if (id != null) {
            p.put("transactional.id", id);
            p.put("transaction.timeout.ms", timeoutMs);
        }
        p.put("max.block.ms", "3000");
        p.put("delivery.timeout.ms", "4000");
        p.put("request.timeout.ms", "2000");
        p.put("linger.ms", "0");
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int size) {
        return new ProducerRecord<>(topic, 0, null, new byte[size]);
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        String state = arguments[1];
        String id = arguments[2];
        try {
            make(state, id);
        } catch (Throwable e) {
            e.printStackTrace(System.out);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void make(String state, String id) throws Exception {
        KafkaProducer<byte[], byte[]> one = producer(id, state.equals("setting") ? 2_000_000_000 : state.equals("timed_out") ? 1_000 : 60_000);
        if (state.equals("misuse")) {
            one.beginTransaction();
            return;
        }
        one.initTransactions();
        one.beginTransaction();
        if (state.equals("too_large")) {
            one.send(record("small", 5_000)).get();
        } else if (state.equals("denied_topic")) {
            one.send(record("denied", 5)).get();
        } else if (state.equals("group")) {
            one.sendOffsetsToTransaction(Map.of(new TopicPartition("plain", 0), new OffsetAndMetadata(1)), new ConsumerGroupMetadata("group-1", 5, "nobody", java.util.Optional.empty()));
        } else if (state.equals("denied_group")) {
            one.sendOffsetsToTransaction(Map.of(new TopicPartition("plain", 0), new OffsetAndMetadata(1)), new ConsumerGroupMetadata("denied-group"));
        } else if (state.equals("fenced")) {
            one.send(record("plain", 5)).get();
            producer(id, 60_000).initTransactions();
            one.send(record("plain", 5)).get();
        } else if (state.equals("fenced_commit")) {
            one.send(record("plain", 5)).get();
            producer(id, 60_000).initTransactions();
            one.commitTransaction();
        } else if (state.equals("timed_out")) {
            one.send(record("plain", 5)).get();
            Thread.sleep(6_000);
            one.commitTransaction();
        } else if (state.equals("expired")) {
            one.send(record("plain", 5)).get();
            one.commitTransaction();
            Thread.sleep(9_000);
            one.beginTransaction();
            one.send(record("plain", 5)).get();
            one.commitTransaction();
        } else {
            throw new IllegalArgumentException(state);
        }
    }
}
