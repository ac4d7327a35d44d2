import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/** What one of Kafka's own command line classes prints: {"class": its name, "arguments": […]}. */
final class Tool implements Judge {
    /** Of all runs, because Scala keeps the stream that it finds first. */
    private static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();

    /** With what this run asked to end first; a tool may take what ends it for an error, and end once more. */
    private static Integer status;

    static {
        System.setOut(new PrintStream(PRINTED, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((asked, message) -> {
            status = status == null ? asked : status;
            throw new IllegalStateException("the tool has ended");
        });
    }

    @Override
    public Object judge(JsonNode given) throws Exception {
        List<String> arguments = new ArrayList<>();
        given.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        PRINTED.reset();
        status = null;
        try {
            Class.forName(given.get("class").asText())
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            if (status == null) {
                throw error;
            }
        }
        String printed = PRINTED.toString(StandardCharsets.UTF_8);
        if (status != null && status != 0) {
            throw new IllegalStateException("it ended with " + status + ": " + printed);
        }
        return printed;
    }
}
