// Maps subjects of certificates to names of principals with Kafka's SslPrincipalMapper.

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

final class Principals {
    private Principals() {
    }

    /** Returns the name of each subject by the rules, null if no rule matches; or that the rules are invalid. */
    static Object principal(JsonNode query) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(query.get("rules").textValue());
        } catch (IllegalArgumentException error) {
            return Collections.singletonMap("invalid", String.valueOf(error.getMessage()));
        }
        List<String> names = new ArrayList<>();
        for (JsonNode subject : query.get("subjects")) {
            names.add(name(mapper, subject.textValue()));
        }
        return Map.of("names", names);
    }

    private static String name(SslPrincipalMapper mapper, String subject) {
        try {
            return mapper.getName(subject);
        } catch (Exception error) {
            return null;
        }
    }
}
