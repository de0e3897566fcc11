import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.kafka010.JsonUtils;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculator;
import org.apache.spark.sql.kafka010.KafkaOffsetReader;
import org.apache.spark.util.ManualClock;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** Runs cases with the classes of Spark's Kafka connector: an array of cases in, one of results out. */
public final class SparkArithmetic {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        ArrayNode results = JSON.createArrayNode();
        for (JsonNode one : JSON.readTree(System.in)) {
            results.add(run(one));
        }
        System.out.println("results: " + results);
    }

    private static JsonNode run(JsonNode one) throws Exception {
        switch (one.get("operation").asText()) {
            case "split":
                return split(one);
            case "limit":
                return limit(one);
            case "delay":
                return delay(one);
            case "offsets":
                return toJson(JsonUtils.partitionOffsets(one.get("text").asText()));
            default:
                return JSON.valueToTree(JavaUtils.timeStringAsMs(one.get("text").asText()));
        }
    }

    private static JsonNode split(JsonNode one) {
        List<KafkaOffsetRange> ranges = new ArrayList<>();
        for (JsonNode row : one.get("ranges")) {
            TopicPartition partition = new TopicPartition("t", row.get(0).asInt());
            long start = row.get(1).asLong();
            long end = row.get(2).asLong();
            ranges.add(new KafkaOffsetRange(partition, start, end, Option.empty()));
        }
        JsonNode least = one.get("min_partitions");
        JsonNode most = one.get("max_records");
        Option<Object> minPartitions = Option.apply(least.isNull() ? null : least.asInt());
        Option<Object> maxRecords = Option.apply(most.isNull() ? null : most.asLong());
        KafkaOffsetRangeCalculator calculator =
            new KafkaOffsetRangeCalculator(minPartitions, maxRecords);
        ArrayNode parts = JSON.createArrayNode();
        for (KafkaOffsetRange part : CollectionConverters.asJava(
                calculator.getRanges(
                    CollectionConverters.asScala(ranges).toSeq(),
                    CollectionConverters.asScala(new ArrayList<String>()).toSeq()))) {
            parts.addArray().add(part.partition()).add(part.fromOffset()).add(part.untilOffset());
        }
        return parts;
    }

    private static JsonNode limit(JsonNode one) throws Exception {
        Map<TopicPartition, Object> start = offsets(one.get("start"));
        Map<TopicPartition, Object> end = offsets(one.get("end"));
        Map<TopicPartition, Object> added = offsets(one.get("added"));
        Object reader = Proxy.newProxyInstance(
            SparkArithmetic.class.getClassLoader(),
            new Class<?>[] {KafkaOffsetReader.class},
            (proxy, method, given) -> added);
        KafkaMicroBatchStream stream = stream();
        set(stream, "kafkaOffsetReader", reader);
        Method method = method("rateLimit");
        return toJson(method.invoke(stream, one.get("limit").asLong(), start, end));
    }

    private static JsonNode delay(JsonNode one) throws Exception {
        KafkaMicroBatchStream stream = stream();
        ManualClock clock = new ManualClock(1_700_000_000_000L);
        set(stream, "clock", clock);
        Method method = method("delayBatch");
        ArrayNode waits = JSON.createArrayNode();
        for (JsonNode step : one.get("steps")) {
            clock.advance(step.get("passed").asLong());
            Object result = method.invoke(
                stream,
                one.get("min_rows").asLong(),
                offsets(step.get("end")),
                offsets(step.get("start")),
                one.get("max_delay").asLong());
            waits.add((Boolean) result);
        }
        return waits;
    }

    /** Makes a stream without a Spark session, which its constructor needs. */
    private static KafkaMicroBatchStream stream() throws Exception {
        Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        sun.misc.Unsafe unsafe = (sun.misc.Unsafe) field.get(null);
        return (KafkaMicroBatchStream) unsafe.allocateInstance(KafkaMicroBatchStream.class);
    }

    private static void set(Object target, String name, Object value) throws Exception {
        Field field = KafkaMicroBatchStream.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(target, value);
    }

    private static Method method(String name) {
        for (Method method : KafkaMicroBatchStream.class.getDeclaredMethods()) {
            if (method.getName().equals(name)) {
                method.setAccessible(true);
                return method;
            }
        }
        throw new IllegalStateException("the connector has no method " + name);
    }

    @SuppressWarnings("unchecked")
    private static Map<TopicPartition, Object> offsets(JsonNode node) {
        Map<TopicPartition, Object> map = (Map<TopicPartition, Object>) (Map<?, ?>) Map$.MODULE$.empty();
        for (var row : node.properties()) {
            TopicPartition partition = new TopicPartition("t", Integer.parseInt(row.getKey()));
            map = map.updated(partition, (Object) row.getValue().asLong());
        }
        return map;
    }

    @SuppressWarnings("unchecked")
    private static JsonNode toJson(Object map) {
        ObjectNode node = JSON.createObjectNode();
        for (Tuple2<TopicPartition, Object> row :
                CollectionConverters.asJava((Map<TopicPartition, Object>) map).entrySet().stream()
                    .map(entry -> new Tuple2<>(entry.getKey(), entry.getValue()))
                    .toList()) {
            node.put(row._1().topic() + "-" + row._1().partition(), ((Number) row._2()).longValue());
        }
        return node;
    }
}
