import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.runtime.distributed.Crypto;

/** The names of all options of a class of configurations, such as ConsumerConfig, by its full name. */
final class OptionNames implements Judge {
    @Override
    public Object judge(JsonNode given) throws Exception {
        Set<String> names = new TreeSet<>();
        Class<?> kind = Class.forName(given.asText());
        for (Field field : kind.getDeclaredFields()) {
            if (field.getType() == ConfigDef.class) {
                field.setAccessible(true);
                names.addAll(((ConfigDef) field.get(null)).names());
            }
        }
        for (Method method : kind.getDeclaredMethods()) {
            if (method.getReturnType() == ConfigDef.class && method.getParameterCount() == 1) {
                // Connect's: it depends on the machine's cryptography.
                method.setAccessible(true);
                names.addAll(((ConfigDef) method.invoke(null, Crypto.SYSTEM)).names());
            }
        }
        return names;
    }
}
