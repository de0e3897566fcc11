import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.TransactionAbortableException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Runs transactions with Kafka's producer while a test injects faults into the cluster.
 *
 * <p>Standard input has JSON objects, one per line. The first of an "id" is a case: servers, name of
 * the topic and of the transactional id, error code, transaction timeout in milliseconds, and the
 * numbers of records that are acknowledged before the fault, in flight behind the failing one (-1 if
 * no request is held), and queued behind those. Each case has a thread. It writes the step "ready"
 * before the failing record is sent and "sent" when all that may be in flight is, and continues after
 * another line with its id. At last it writes the outcomes of the records, the commit, the abort and
 * the next transaction, the class of the error code, and the category of the commit's error.
 */
public final class ProduceErrors {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final JsonNode fields;
    private final Semaphore steps = new Semaphore(0);
    private Throwable last;

    private ProduceErrors(JsonNode fields) {
        this.fields = fields;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ExecutorService threads = Executors.newCachedThreadPool();
        Map<Integer, ProduceErrors> running = new HashMap<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode fields = JSON.readTree(line);
            ProduceErrors found = running.get(fields.get("id").intValue());
            if (found == null) {
                ProduceErrors created = new ProduceErrors(fields);
                running.put(fields.get("id").intValue(), created);
                threads.execute(created::run);
            } else {
                found.steps.release();
            }
        }
        System.exit(0);
    }

    private void run() {
        ObjectNode result = JSON.createObjectNode();
        try {
            run(result);
        } catch (Exception error) {
            result.put("failed", error.toString());
        }
        tell("done", result);
    }

    private void run(ObjectNode result) throws Exception {
        int before = number("before");
        int behind = number("behind");
        int queued = number("queued");
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer).get();
            producer.commitTransaction();
            producer.beginTransaction();
            List<Future<?>> sent = new ArrayList<>();
            for (int i = 0; i < before; i++) {
                send(producer).get();
            }
            Metric inFlight = inFlight(producer);
            pause("ready");
            for (int i = 0; i < 1 + behind + queued; i++) {
                sent.add(send(producer));
            }
            while (((Number) inFlight.metricValue()).doubleValue() < 1 + behind) {
                Thread.sleep(1);
            }
            pause("sent");
            ArrayNode records = result.putArray("records");
            for (Future<?> each : sent) {
                records.add(outcome((Step) each::get));
            }
            String commit = outcome((Call) producer::commitTransaction);
            result.put("commit", commit);
            result.put("category", commit.equals("ok") ? "" : category(last));
            result.put(
                    "abort", commit.equals("ok") ? "" : outcome((Call) producer::abortTransaction));
            result.put("next", outcome((Step) () -> {
                producer.beginTransaction();
                send(producer).get();
                producer.commitTransaction();
                return null;
            }));
            result.put("error", Errors.forCode((short) number("code")).exception() == null
                    ? ""
                    : Errors.forCode((short) number("code")).exception().getClass().getSimpleName());
            producer.close(Duration.ZERO);
        }
    }

    private KafkaProducer<byte[], byte[]> producer() {
        Properties options = new Properties();
        options.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, fields.get("servers").textValue());
        options.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, fields.get("name").textValue());
        options.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, number("timeout_ms"));
        options.put(ProducerConfig.BATCH_SIZE_CONFIG, 0); // each record is a batch
        options.put(ProducerConfig.LINGER_MS_CONFIG, 0);
        options.put(
                ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION,
                Math.max(1, 1 + number("behind")));
        options.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, 5000);
        options.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, 5000);
        options.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, 5000);
        options.put(ProducerConfig.RETRY_BACKOFF_MS_CONFIG, 10);
        return new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private Future<?> send(KafkaProducer<byte[], byte[]> producer) {
        String topic = fields.get("name").textValue();
        return producer.send(new ProducerRecord<>(topic, 0, null, new byte[1000]));
    }

    private static Metric inFlight(KafkaProducer<byte[], byte[]> producer) {
        return producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("requests-in-flight"))
                .findFirst()
                .orElseThrow();
    }

    private int number(String field) {
        return fields.get(field).intValue();
    }

    private void pause(String step) throws InterruptedException {
        tell(step, JSON.createObjectNode());
        steps.acquire();
    }

    private void tell(String step, ObjectNode result) {
        result.put("id", number("id")).put("step", step);
        synchronized (System.out) {
            System.out.println(result);
            System.out.flush();
        }
    }

    private interface Step {
        Object run() throws Exception;
    }

    private interface Call {
        void run();
    }

    private String outcome(Call call) {
        return outcome((Step) () -> {
            call.run();
            return null;
        });
    }

    private String outcome(Step step) {
        try {
            step.run();
            return "ok";
        } catch (ExecutionException error) {
            last = error.getCause();
        } catch (Exception error) {
            last = error;
        }
        return names(last);
    }

    /** Returns the category of KIP-1050 that the class of an exception or of a cause has. */
    private static String category(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof ApplicationRecoverableException) {
                return "APPLICATION_RECOVERABLE";
            } else if (each instanceof InvalidConfigurationException) {
                return "INVALID_CONFIGURATION";
            } else if (each instanceof TransactionAbortableException) {
                return "ABORTABLE";
            }
        }
        return "";
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
