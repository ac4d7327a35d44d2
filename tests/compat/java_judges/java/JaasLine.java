import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** The only login module of a line of sasl.jaas.config. */
final class JaasLine implements Judge {
    @Override
    public Object judge(JsonNode given) {
        JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(given.asText())));
        AppConfigurationEntry entry = context.configurationEntries().get(0);
        Map<String, Object> options = new HashMap<>(entry.getOptions());
        boolean hasNameless = options.containsKey(null);
        options.remove(null);
        String module = entry.getLoginModuleName();
        return Map.of("module", module.substring(module.lastIndexOf('.') + 1), "options", options, "has nameless", hasNameless);
    }
}
