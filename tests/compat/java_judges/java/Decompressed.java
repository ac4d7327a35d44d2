import com.fasterxml.jackson.databind.JsonNode;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.utils.BufferSupplier;

/** What the records of a batch are, given its codec and its bytes (base64). */
final class Decompressed implements Judge {
    @Override
    public Object judge(JsonNode given) throws Exception {
        ByteBuffer packed = ByteBuffer.wrap(Base64.getDecoder().decode(given.get(1).asText()));
        Compression codec = Compression.of(CompressionType.forName(given.get(0).asText())).build();
        try (InputStream plain = codec.wrapForInput(packed, RecordBatch.MAGIC_VALUE_V2, BufferSupplier.NO_CACHING)) {
            return Base64.getEncoder().encodeToString(plain.readAllBytes());
        }
    }
}
