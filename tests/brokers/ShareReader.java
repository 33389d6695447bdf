import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a topic as a share group for some seconds, and prints the number of records: `BOOTSTRAP GROUP TOPIC SECONDS`. */
public class ShareReader {
    public static void main(String[] arguments) {
        Properties p = new Properties();
        p.put("bootstrap.servers", arguments[0]);
        p.put("group.id", arguments[1]);
        int count = 0;
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<>(p, bytes, bytes)) {
            consumer.subscribe(List.of(arguments[2]));
            long end = System.currentTimeMillis() + 1000 * Long.parseLong(arguments[3]);
            while (System.currentTimeMillis() < end) {
                count += consumer.poll(Duration.ofMillis(200)).count();
                consumer.commitSync();
            }
        }
        System.out.println(count);
    }
}
