import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import javax.net.ssl.SSLSession;
import org.apache.kafka.common.security.auth.SslAuthenticationContext;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** The principal of a client that has sent this certificate (base64 of DER), by the default builder. */
final class CertificatePrincipal implements Judge {
    @Override
    public Object judge(JsonNode given) throws Exception {
        byte[] der = Base64.getDecoder().decode(given.asText());
        X509Certificate certificate = (X509Certificate) CertificateFactory.getInstance("X.509")
            .generateCertificate(new ByteArrayInputStream(der));
        SSLSession session = (SSLSession) Proxy.newProxyInstance(
            getClass().getClassLoader(), new Class<?>[] {SSLSession.class},
            (proxy, method, arguments) -> certificate.getSubjectX500Principal());
        return new DefaultKafkaPrincipalBuilder(null, SslPrincipalMapper.fromRules("DEFAULT"))
            .build(new SslAuthenticationContext(session, InetAddress.getLoopbackAddress(), "SSL")).toString();
    }
}
