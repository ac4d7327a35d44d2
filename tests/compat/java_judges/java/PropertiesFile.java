import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;

/**
 * A text as Kafka's tools read a file of it in UTF-8, and as a Java would that knew the encoding; and whether a line had no
 * name or no value.
 */
final class PropertiesFile implements Judge {
    @Override
    public Object judge(JsonNode given) throws Exception {
        String text = given.asText();
        Noting read = new Noting();
        read.load(new ByteArrayInputStream(text.getBytes(StandardCharsets.UTF_8)));
        Noting inUtf8 = new Noting();
        inUtf8.load(new StringReader(text.startsWith("\ufeff") ? text.substring(1) : text));
        return Map.of("read", read, "in UTF-8", inUtf8, "lacks one", read.lacksOne || inUtf8.lacksOne);
    }

    private static final class Noting extends Properties {
        private boolean lacksOne;

        @Override
        public synchronized Object put(Object name, Object value) {
            lacksOne |= name.equals("") || value.equals("");
            return super.put(name, value);
        }
    }
}
