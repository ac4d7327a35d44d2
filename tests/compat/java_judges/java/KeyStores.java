import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

/**
 * Whom a client trusts, and by which certificates it says who it is: {"options": {"ssl.…": …}, "files": {the option that
 * names a file: its content in base64}}. Certificates are shown by their SHA-256.
 */
final class KeyStores implements Judge {
    @Override
    public Object judge(JsonNode given) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (Map.Entry<String, JsonNode> option : given.get("options").properties()) {
            options.put(option.getKey(), option.getValue().asText());
        }
        List<Path> files = new ArrayList<>();
        DefaultSslEngineFactory factory = new DefaultSslEngineFactory();
        try {
            for (Map.Entry<String, JsonNode> file : given.get("files").properties()) {
                Path path = Files.createTempFile("judged", ".store");
                files.add(path);
                Files.write(path, Base64.getDecoder().decode(file.getValue().asText()));
                options.put(file.getKey(), path.toString());
            }
            factory.configure(new ConfigDef().withClientSslSupport().parse(options));
        } finally {
            for (Path path : files) {
                Files.delete(path);
            }
            factory.close();
        }
        return Map.of("chains", chains(factory.keystore()), "trusted", trusted(factory.truststore()));
    }

    private static List<List<String>> chains(KeyStore store) throws Exception {
        List<List<String>> chains = new ArrayList<>();
        for (String alias : aliases(store)) {
            if (store.isKeyEntry(alias)) {
                List<String> chain = new ArrayList<>();
                for (Certificate certificate : store.getCertificateChain(alias)) {
                    chain.add(digest(certificate));
                }
                chains.add(chain);
            }
        }
        return chains;
    }

    private static List<String> trusted(KeyStore store) throws Exception {
        List<String> trusted = new ArrayList<>();
        for (String alias : aliases(store)) {
            trusted.add(digest(store.getCertificate(alias)));
        }
        Collections.sort(trusted);
        return trusted;
    }

    private static List<String> aliases(KeyStore store) throws Exception {
        return store == null ? List.of() : Collections.list(store.aliases());
    }

    private static String digest(Certificate certificate) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(certificate.getEncoded()));
    }
}
