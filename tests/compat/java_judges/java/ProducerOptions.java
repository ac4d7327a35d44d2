import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.MetadataRecoveryStrategy;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The configuration of a producer: {"options": {name: text}, "asked": [name]}. Taken for the values of those that are
 * asked for, as the constructor of KafkaProducer sees them before it makes anything of them.
 */
final class ProducerOptions implements Judge {
    private static final Logger LOG = LoggerFactory.getLogger(ProducerOptions.class);
    private final Method deliveryTimeout;

    ProducerOptions() throws NoSuchMethodException {
        deliveryTimeout = KafkaProducer.class.getDeclaredMethod("configureDeliveryTimeout", ProducerConfig.class, Logger.class);
        deliveryTimeout.setAccessible(true);
    }

    @Override
    public Object judge(JsonNode given) throws Exception {
        Map<String, Object> options = new HashMap<>();
        for (Map.Entry<String, JsonNode> option : given.get("options").properties()) {
            options.put(option.getKey(), option.getValue().asText());
        }
        options.putIfAbsent("key.serializer", ByteArraySerializer.class);
        options.putIfAbsent("value.serializer", ByteArraySerializer.class);
        ProducerConfig config = new ProducerConfig(options);
        int timeout;
        try {
            timeout = (int) deliveryTimeout.invoke(null, config, LOG);
        } catch (InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
        Map<String, Object> values = new HashMap<>();
        for (JsonNode asked : given.get("asked")) {
            String name = asked.asText();
            Object value = config.values().get(name);
            if (name.equals("delivery.timeout.ms")) {
                value = timeout;
            } else if (name.equals("security.protocol")) {
                value = SecurityProtocol.forName((String) value).name;
            } else if (name.equals("metadata.recovery.strategy")) {
                value = MetadataRecoveryStrategy.forName((String) value).name;
            }
            values.put(name, plain(value));
        }
        return values;
    }

    private static Object plain(Object value) {
        if (value instanceof Password) {
            return ((Password) value).value();
        }
        if (value instanceof Class) {
            String name = ((Class<?>) value).getName();
            return name.substring(name.lastIndexOf('.') + 1);
        }
        if (value instanceof List) {
            List<Object> all = new ArrayList<>();
            for (Object each : (List<?>) value) {
                all.add(plain(each));
            }
            return all;
        }
        return value;
    }
}
