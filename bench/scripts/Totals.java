// Kafka Streams: decodes JSON, groups by the message's key (which is the bidder), keeps count, sum, min and max in RocksDB,
// until it has seen every record that was there when it began.
//
//     java -cp ... Totals BOOTSTRAP TOPIC FOLDER THREADS
//
// Leaves FOLDER/totals.csv. https://kafka.apache.org/documentation/streams/
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

public class Totals {
    static final JsonFactory JSON = new JsonFactory();

    static byte[] bidderAndPrice(byte[] value) {
        try (var parser = JSON.createParser(value)) {
            long bidder = 0, price = 0;
            while (parser.nextToken() != null) {
                if (parser.currentToken() != JsonToken.FIELD_NAME) continue;
                String name = parser.currentName();
                parser.nextToken();
                if (name.equals("bidder")) bidder = parser.getLongValue();
                else if (name.equals("price")) price = parser.getLongValue();
            }
            return ByteBuffer.allocate(16).putLong(bidder).putLong(price).array();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** bidder, count, sum, min, max. */
    static byte[] fold(byte[] row, byte[] state) {
        ByteBuffer given = ByteBuffer.wrap(row), held = ByteBuffer.wrap(state);
        long price = given.getLong(8);
        boolean first = held.getLong(8) == 0;
        return ByteBuffer.allocate(40).putLong(given.getLong(0)).putLong(held.getLong(8) + 1).putLong(held.getLong(16) + price)
            .putLong(first ? price : Math.min(held.getLong(24), price)).putLong(first ? price : Math.max(held.getLong(32), price)).array();
    }

    static long records(Properties options, String topic) throws Exception {
        try (Admin admin = Admin.create(options)) {
            Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
            for (var partition : admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions()) {
                ends.put(new TopicPartition(topic, partition.partition()), OffsetSpec.latest());
            }
            return admin.listOffsets(ends).all().get().values().stream().mapToLong(each -> each.offset()).sum();
        }
    }

    public static void main(String[] given) throws Exception {
        String topic = given[1], folder = given[2];
        Properties options = new Properties();
        options.put("bootstrap.servers", given[0]);
        options.put("application.id", "totals-" + System.currentTimeMillis());
        options.put("num.stream.threads", given[3]);
        options.put("auto.offset.reset", "earliest");
        options.put("state.dir", folder + "/state");
        options.put("default.key.serde", Serdes.ByteArraySerde.class.getName());
        options.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
        // Large fetches, a large cache before RocksDB, and large compressed batches into the changelog.
        options.put("max.poll.records", "20000");
        options.put("max.partition.fetch.bytes", "16777216");
        options.put("receive.buffer.bytes", "1048576");
        options.put("statestore.cache.max.bytes", "104857600");
        options.put("linger.ms", "50");
        options.put("batch.size", "262144");
        options.put("compression.type", "lz4");

        long records = records(options, topic);
        LongAdder seen = new LongAdder();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .mapValues(Totals::bidderAndPrice)
            .groupByKey(Grouped.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .aggregate(() -> new byte[40], (key, row, state) -> { seen.increment(); return fold(row, state); },
                Materialized.<byte[], byte[]>as(Stores.persistentKeyValueStore("totals")).withKeySerde(Serdes.ByteArray()).withValueSerde(Serdes.ByteArray()));
        KafkaStreams streams = new KafkaStreams(builder.build(), options);
        streams.start();
        while (seen.sum() < records) Thread.sleep(10);
        // The last is counted right before it is put.
        Thread.sleep(10);

        var store = streams.store(StoreQueryParameters.fromNameAndType("totals", QueryableStoreTypes.<byte[], byte[]>keyValueStore()));
        try (var file = Files.newBufferedWriter(Path.of(folder, "totals.csv")); var rows = store.all()) {
            file.write("bidder,bids,total,lowest,highest\n");
            while (rows.hasNext()) {
                ByteBuffer row = ByteBuffer.wrap(rows.next().value);
                file.write(row.getLong() + "," + row.getLong() + "," + row.getLong() + "," + row.getLong() + "," + row.getLong() + "\n");
            }
        }
        streams.close(Duration.ofSeconds(20));
        // Its changelog and what else it has made on the broker.
        String own = options.getProperty("application.id");
        try (Admin admin = Admin.create(options)) {
            admin.deleteTopics(admin.listTopics().names().get().stream().filter(name -> name.startsWith(own)).toList()).all().get();
        }
    }
}
