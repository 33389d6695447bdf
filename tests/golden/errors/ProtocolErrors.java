import org.apache.kafka.common.protocol.Errors;

/** Prints the errors of Kafka's protocol, one a line: code, name, class of its exception, message. */
public class ProtocolErrors {
    public static void main(String[] arguments) {
        for (Errors each : Errors.values()) {
            String exception = each.exception() == null ? "" : each.exception().getClass().getSimpleName();
            System.out.println(each.code() + "\t" + each.name() + "\t" + exception + "\t" + each.message());
        }
    }
}
