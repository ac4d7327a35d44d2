import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.security.oauthbearer.ClientJwtValidator;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;

/** When a token that a client was given expires, in ms since 1970. */
final class BearerToken implements Judge {
    private final ClientJwtValidator validator = new ClientJwtValidator();

    BearerToken() {
        validator.configure(
            Map.of("sasl.oauthbearer.scope.claim.name", "scope", "sasl.oauthbearer.sub.claim.name", "sub"),
            "OAUTHBEARER", List.of());
    }

    @Override
    public Object judge(JsonNode given) throws Exception {
        OAuthBearerToken token = validator.validate(given.asText());
        return token.lifetimeMs();
    }
}
