import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Cases that kafka-producer-perf-test does not support: records with keys, and single records. The
 * loop is that of the tool: a send with a callback for each record, then flush.
 *
 * <p>Arguments: mode (produce or round_trip), topic, file of values, bytes per value, records,
 * warm-up records, number of keys (0: none), operations per second (0: back to back), time of the
 * first one in milliseconds since the epoch (0: now), and properties as name=value. Prints a line
 * after the warm-up, and one with the nanoseconds of the records; for round trips, also the
 * nanoseconds of each one.
 */
final class Sender {
    private static final byte[] WARM_UP = "warm-up".getBytes();

    private static volatile Exception failure;

    private Sender() {}

    public static void main(String[] arguments) throws Exception {
        String mode = arguments[0];
        String topic = arguments[1];
        byte[][] values = split(Files.readAllBytes(Path.of(arguments[2])), arguments[3]);
        int records = Integer.parseInt(arguments[4]);
        int warmUp = Integer.parseInt(arguments[5]);
        byte[][] keys = keys(Integer.parseInt(arguments[6]));
        double rate = Double.parseDouble(arguments[7]);
        long start = Long.parseLong(arguments[8]);
        try (var producer = new KafkaProducer<byte[], byte[]>(properties(arguments, 9))) {
            boolean single = mode.equals("round_trip");
            if (single) {
                roundTrips(producer, topic, WARM_UP, warmUp, 0, 0);
            } else {
                send(producer, topic, new byte[][] {WARM_UP}, keys, warmUp);
            }
            System.out.println("warmed up");
            long begin = System.nanoTime();
            List<String> taken = List.of();
            if (single) {
                taken = roundTrips(producer, topic, values[0], records, rate, start);
            } else {
                send(producer, topic, values, keys, records);
            }
            long time = System.nanoTime() - begin;
            if (failure != null) {
                throw failure;
            }
            System.out.println(time + " " + String.join(" ", taken));
        }
    }

    private static void send(
            KafkaProducer<byte[], byte[]> producer,
            String topic,
            byte[][] values,
            byte[][] keys,
            int records) {
        for (int number = 0; number < records; number++) {
            byte[] key = keys.length == 0 ? null : keys[number % keys.length];
            byte[] value = values[number % values.length];
            producer.send(new ProducerRecord<>(topic, key, value), new Report());
        }
        producer.flush();
    }

    private static List<String> roundTrips(
            KafkaProducer<byte[], byte[]> producer,
            String topic,
            byte[] value,
            int records,
            double rate,
            long start)
            throws Exception {
        List<String> taken = new ArrayList<>(records);
        long first = System.nanoTime() + delay(start, rate);
        for (int number = 0; number < records; number++) {
            if (rate > 0) {
                long due = first + (long) (number * 1e9 / rate);
                for (long left; (left = due - System.nanoTime()) > 0; ) {
                    LockSupport.parkNanos(left);
                }
            }
            long begin = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, value)).get();
            taken.add(Long.toString(System.nanoTime() - begin));
        }
        return taken;
    }

    /** Nanoseconds until the first operation: at the start, or at the next multiple of the interval. */
    private static long delay(long start, double rate) {
        long left = start == 0 ? 0 : start - System.currentTimeMillis();
        long each = rate > 0 ? (long) (1e3 / rate) : 1;
        return 1_000_000 * (left >= 0 ? left : Math.floorMod(left, each));
    }

    /** Callback of a record, which stores the time of sending, as in the tool. */
    private static final class Report implements Callback {
        private final long begin = System.nanoTime();
        private long taken;

        @Override
        public void onCompletion(RecordMetadata metadata, Exception error) {
            taken = System.nanoTime() - begin;
            if (error != null) {
                failure = error;
            }
        }
    }

    private static byte[][] split(byte[] all, String size) {
        int each = Integer.parseInt(size);
        byte[][] values = new byte[all.length / each][];
        for (int i = 0; i < values.length; i++) {
            values[i] = Arrays.copyOfRange(all, i * each, (i + 1) * each);
        }
        return values;
    }

    private static byte[][] keys(int count) {
        byte[][] keys = new byte[count][];
        for (int i = 0; i < count; i++) {
            keys[i] = String.format("%010d", i).getBytes();
        }
        return keys;
    }

    private static Properties properties(String[] arguments, int from) {
        Properties properties = new Properties();
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        for (int i = from; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        return properties;
    }
}
