import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Producers that commit transactions until the file `stop` exists in a directory: `BOOTSTRAP DIRECTORY NAME=TOPIC,TOPIC...`.
 *
 * A transaction writes a record to each topic, waits as an application works between its writes and its commit, and
 * commits. Each has an id of its own, NAME-1, NAME-2 and so on, so that no later transaction of the same producer closes
 * one that lost its marker. While the file `pause-NAME` exists, there is no transaction, and `paused-NAME` says so.
 */
public class Writers {
    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[1]);
        for (String one : List.of(arguments).subList(2, arguments.length)) {
            String[] parts = one.split("=");
            new Thread(() -> run(arguments[0], directory, parts[0], List.of(parts[1].split(",")))).start();
        }
    }

    static void run(String bootstrap, Path directory, String name, List<String> topics) {
        Random random = new Random(name.hashCode());
        Path pause = directory.resolve("pause-" + name), paused = directory.resolve("paused-" + name);
        for (int number = 1; !Files.exists(directory.resolve("stop")); number++) {
            try {
                if (Files.exists(pause)) {
                    Files.writeString(paused, "");
                    Thread.sleep(100);
                    continue;
                }
                Files.deleteIfExists(paused);
                commit(bootstrap, name + "-" + number, topics, 200 + random.nextInt(600));
            } catch (Exception failed) {
                System.out.println(name + "-" + number + ": " + failed);
            }
        }
    }

    static void commit(String bootstrap, String id, List<String> topics, int workMs) throws InterruptedException {
        try (var producer = producer(bootstrap, id)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (String topic : topics) {
                producer.send(new ProducerRecord<>(topic, 0, null, id.getBytes()));
            }
            producer.flush();
            Thread.sleep(workMs);
            producer.commitTransaction();
        }
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String id) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("transactional.id", id);
        p.put("acks", "all");
        p.put("transaction.timeout.ms", "600000");
        p.put("delivery.timeout.ms", "120000");
        p.put("max.block.ms", "120000");
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }
}
