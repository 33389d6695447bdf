import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import kafka.coordinator.transaction.TransactionStateManager;
import org.apache.kafka.common.utils.Utils;
import sun.misc.Unsafe;

/**
 * Prints what Kafka computes of each id on stdin, one line each: String.hashCode(), Utils.abs of it, the partition by
 * TransactionStateManager.partitionFor for each count of partitions in the arguments, and the id as a broker gets it
 * from a client. Ids are UTF-16 code units in hexadecimal, so that no encoding of a stream changes them.
 */
public class Coordinators {
    public static void main(String[] counts) throws Exception {
        Field theUnsafe = Unsafe.class.getDeclaredField("theUnsafe");
        theUnsafe.setAccessible(true);
        // Without a constructor: partitionFor needs the number of partitions alone.
        Object manager = ((Unsafe) theUnsafe.get(null)).allocateInstance(TransactionStateManager.class);
        Field count = TransactionStateManager.class.getDeclaredField("transactionTopicPartitionCount");
        count.setAccessible(true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String id = text(line);
            StringBuilder out = new StringBuilder().append(id.hashCode()).append(' ').append(Utils.abs(id.hashCode()));
            for (String each : counts) {
                count.setInt(manager, Integer.parseInt(each));
                out.append(' ').append(((TransactionStateManager) manager).partitionFor(id));
            }
            System.out.println(out.append(' ').append(units(Utils.utf8(Utils.utf8(id)))));
        }
    }

    private static String text(String units) {
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < units.length(); at += 4) {
            text.append((char) Integer.parseInt(units.substring(at, at + 4), 16));
        }
        return text.toString();
    }

    private static String units(String text) {
        StringBuilder units = new StringBuilder();
        for (char unit : text.toCharArray()) {
            units.append(String.format("%04x", (int) unit));
        }
        return units.length() == 0 ? "-" : units.toString();
    }
}
