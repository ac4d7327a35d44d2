import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Counts the records of each key of NAME-in in its state, and writes each count to NAME-out, exactly once. */
public final class CountingJob {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], name = arguments[1];
        Path checkpoints = Path.of(arguments[2], "checkpoints");
        Configuration settings = new Configuration();
        settings.setString("parallelism.default", "2");
        settings.setString("execution.checkpointing.interval", "500 ms");
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        newest(checkpoints).ifPresent(path -> settings.setString("execution.state-recovery.path", path.toString()));
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(servers)
                .setTopics(name + "-in")
                .setGroupId(name)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setDeserializer(new KeyOfRecord())
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(servers)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(name)
                .setProperty("transaction.timeout.ms", "60000")
                .setRecordSerializer((KafkaRecordSerializationSchema<String>) (count, context, time) ->
                        new ProducerRecord<>(name + "-out", null, count.getBytes(StandardCharsets.UTF_8)))
                .build();
        environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), "read")
                .uid("read")
                .keyBy(key -> key, Types.STRING)
                .map(new Counting())
                .uid("count")
                .sinkTo(sink)
                .uid("write");
        environment.execute(name);
    }

    /** The checkpoint that was completed last, of this or an earlier process. */
    private static Optional<Path> newest(Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            return files.filter(path -> path.endsWith("_metadata"))
                    .max(Comparator.comparing(path -> path.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    private static final class KeyOfRecord implements KafkaRecordDeserializationSchema<String> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> collected) {
            collected.collect(new String(record.key(), StandardCharsets.UTF_8));
        }

        @Override
        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }

    private static final class Counting extends RichMapFunction<String, String> {
        private transient ValueState<Long> counted;

        @Override
        public void open(OpenContext context) {
            counted = getRuntimeContext().getState(new ValueStateDescriptor<>("counted", Types.LONG));
        }

        @Override
        public String map(String key) throws IOException {
            Long before = counted.value();
            long count = before == null ? 1 : before + 1;
            counted.update(count);
            return key + " " + count;
        }
    }
}
