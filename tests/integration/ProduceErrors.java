import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs transactions with Kafka's producer while a test injects faults into the cluster.
 *
 * <p>A line of standard input is a case: servers, transactional id, topic, transaction timeout in
 * milliseconds, and the numbers of records that are acknowledged before the fault, in flight behind
 * the failing one (-1 if no request is held), and queued behind those. The program writes "ready" before the failing record is
 * sent and "sent" when all that may be in flight is, and reads a line after each. It writes the
 * outcomes of the records, the commit, the abort, and the next transaction, separated by tabs.
 */
public final class ProduceErrors {
    private ProduceErrors() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line = input.readLine();
        while (line != null) {
            System.out.println(run(line.split(" "), input));
            line = input.readLine();
        }
        System.exit(0);
    }

    private static String run(String[] fields, BufferedReader input) throws Exception {
        String topic = fields[2];
        int before = Integer.parseInt(fields[4]);
        int behind = Integer.parseInt(fields[5]);
        int queued = Integer.parseInt(fields[6]);
        List<String> results = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(fields)) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, topic).get();
            producer.commitTransaction();
            producer.beginTransaction();
            List<Future<?>> sent = new ArrayList<>();
            for (int i = 0; i < before; i++) {
                send(producer, topic).get();
            }
            tell("ready", input);
            for (int i = 0; i < 1 + behind + queued; i++) {
                sent.add(send(producer, topic));
            }
            while (inFlight(producer) < 1 + behind) {
                Thread.sleep(1);
            }
            tell("sent", input);
            for (Future<?> each : sent) {
                results.add(outcome((Step) each::get));
            }
            String commit = outcome((Call) producer::commitTransaction);
            results.add(commit);
            results.add(commit.equals("ok") ? "-" : outcome((Call) producer::abortTransaction));
            results.add(outcome((Step) () -> {
                producer.beginTransaction();
                send(producer, topic).get();
                producer.commitTransaction();
                return null;
            }));
            producer.close(java.time.Duration.ZERO);
        }
        return String.join("\t", results);
    }

    private static KafkaProducer<byte[], byte[]> producer(String[] fields) {
        Properties options = new Properties();
        options.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, fields[0]);
        options.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, fields[1]);
        options.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, fields[3]);
        options.put(ProducerConfig.BATCH_SIZE_CONFIG, 0); // each record is a batch
        options.put(ProducerConfig.LINGER_MS_CONFIG, 0);
        options.put(
                ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION,
                Math.max(1, 1 + Integer.parseInt(fields[5])));
        options.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, 5000);
        options.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, 5000);
        options.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, 5000);
        options.put(ProducerConfig.RETRY_BACKOFF_MS_CONFIG, 10);
        return new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Future<?> send(KafkaProducer<byte[], byte[]> producer, String topic) {
        return producer.send(new ProducerRecord<>(topic, 0, null, new byte[1000]));
    }

    private static double inFlight(KafkaProducer<byte[], byte[]> producer) {
        return producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("requests-in-flight"))
                .mapToDouble(metric -> ((Number) metric.metricValue()).doubleValue())
                .findFirst()
                .orElse(0);
    }

    private static void tell(String word, BufferedReader input) throws Exception {
        System.out.println(word);
        System.out.flush();
        input.readLine();
    }

    private interface Step {
        Object run() throws Exception;
    }

    private interface Call {
        void run();
    }

    private static String outcome(Call call) {
        return outcome((Step) () -> {
            call.run();
            return null;
        });
    }

    private static String outcome(Step step) {
        try {
            step.run();
            return "ok";
        } catch (ExecutionException error) {
            return names(error.getCause());
        } catch (Exception error) {
            return names(error);
        }
    }

    /** Returns the simple names of an exception's class and of its causes. */
    private static String names(Throwable error) {
        List<String> found = new ArrayList<>();
        for (Throwable each = error; each != null && found.size() < 5; each = each.getCause()) {
            found.add(each.getClass().getSimpleName());
        }
        return String.join("<", found);
    }
}
