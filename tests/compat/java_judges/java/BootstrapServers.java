import com.fasterxml.jackson.databind.JsonNode;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.ClientUtils;
import org.apache.kafka.clients.producer.ProducerConfig;

/** The addresses of a producer's bootstrap.servers, as host and port. */
final class BootstrapServers implements Judge {
    @Override
    public Object judge(JsonNode given) {
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", given.asText());
        String serializer = "org.apache.kafka.common.serialization.ByteArraySerializer";
        options.put("key.serializer", serializer);
        options.put("value.serializer", serializer);
        List<List<Object>> addresses = new ArrayList<>();
        for (InetSocketAddress address : ClientUtils.parseAndValidateAddresses(new ProducerConfig(options))) {
            addresses.add(List.of(address.getHostString(), address.getPort()));
        }
        return addresses;
    }
}
