// Runs operations with Kafka's classes. stdin has one query per line, a JSON object with an operation
// and its arguments; stdout has one result per line, in order: {"result": ...}, or {"error": stack trace}
// if the operation has failed. Bytes are base64 strings.

import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;

public final class Conformance {
    private static final int MAX_STRING_LENGTH = 1 << 28;

    private static final JsonMapper JSON = mapper();
    private static final Map<String, Operation> OPERATIONS = Map.ofEntries(
        Map.entry("versions", Messages::versions),
        Map.entry("compare", Messages::compare),
        Map.entry("encode", Messages::encode),
        Map.entry("read", Records::read),
        Map.entry("write", Records::write),
        Map.entry("assign", Records::assign),
        Map.entry("marker", Records::marker),
        Map.entry("control", Records::control),
        Map.entry("empty", Records::empty),
        Map.entry("compact", Records::compact),
        Map.entry("decompress", Compressed::decompress),
        Map.entry("principal", Principals::principal),
        Map.entry("assign_group", Assignors::assignGroup),
        Map.entry("user_data", Assignors::userData));

    private Conformance() {
    }

    /** Returns the result of a query. */
    private interface Operation {
        Object run(JsonNode query) throws Exception;
    }

    /** Runs queries until stdin ends. Output of Kafka's classes goes to stderr. */
    public static void main(String[] arguments) throws IOException {
        System.setOut(System.err);
        try (FileOutputStream out = new FileOutputStream(FileDescriptor.out)) {
            BufferedReader in = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                byte[] result = JSON.writeValueAsBytes(run(line));
                out.write(result);
                out.write('\n');
            }
        }
    }

    private static Map<String, Object> run(String line) {
        try {
            JsonNode query = JSON.readTree(line);
            Operation operation = OPERATIONS.get(query.path("operation").textValue());
            return Collections.singletonMap("result", operation.run(query));
        } catch (Exception error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            return Map.of("error", trace.toString());
        }
    }

    private static JsonMapper mapper() {
        JsonMapper made = JsonMapper.builder()
            .enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS)
            .disable(JsonWriteFeature.WRITE_NAN_AS_STRINGS)
            .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
            .build();
        made.getFactory().setStreamReadConstraints(
            StreamReadConstraints.builder().maxStringLength(MAX_STRING_LENGTH).build());
        return made;
    }
}
