// Reads and writes single messages with Kafka's classes.
//
// Messages are the JSON of Kafka's generated converters, with three additions: unknown tagged fields
// under "_unknownTaggedFields" of their structure, as [tag, bytes]; under "_setters" the numbers and
// nulls that no version's JSON can represent; and, in results, the bytes of records, of which the
// converters write only the size.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.record.internal.MemoryRecords;

final class Messages {
    private static final String PACKAGE = "org.apache.kafka.common.message.";
    private static final String UNKNOWN = "_unknownTaggedFields";
    private static final String SETTERS = "_setters";

    private static final Map<String, Kind> KINDS = new HashMap<>();
    private static final Map<Class<?>, Map<String, Method>> GETTERS = new HashMap<>();

    private Messages() {
    }

    /** Compares a message, as a JSON tree, with its bytes: returns our bytes, equality, and their tree. */
    static Object compare(JsonNode query) throws Exception {
        Kind kind = kind(query);
        short version = query.get("version").shortValue();
        String step = "read the JSON";
        try {
            Message made = fromJson(kind, version, query.get("tree"));
            step = "encode";
            byte[] encoded = toBytes(made, version);
            step = "decode the other side's bytes";
            Message read = fromBytes(kind, version, query.get("bytes").binaryValue());
            step = "write the JSON";
            JsonNode tree = toJson(kind, version, read);
            return Map.of("encoded", encoded, "equal", read.equals(made), "tree", tree);
        } catch (RuntimeException | StackOverflowError error) {
            return Map.of("failure", "could not " + step + ": " + error);
        }
    }

    /** Encodes a message, as a JSON tree of one version, in another: returns the bytes or the error. */
    static Object encode(JsonNode query) throws Exception {
        Message made;
        try {
            made = fromJson(kind(query), query.get("source_version").shortValue(), query.get("tree"));
        } catch (RuntimeException error) {
            return Map.of("failure", "could not read the JSON: " + error);
        }
        try {
            return Map.of("encoded", toBytes(made, query.get("version").shortValue()));
        } catch (RuntimeException error) {
            return Map.of("refusal", error.toString());
        }
    }

    /**
     * Returns a message's lowest and highest version; with a key also the key, the highest released
     * version, and the header versions of each version.
     */
    static Object versions(JsonNode query) throws Exception {
        ApiMessage made = (ApiMessage) kind(query).make();
        short lowest = made.lowestSupportedVersion();
        short highest = made.highestSupportedVersion();
        if (made.apiKey() < 0) {
            return Map.of("lowest", lowest, "highest", highest);
        }
        ApiKeys key = ApiKeys.forId(made.apiKey());
        List<short[]> headers = new ArrayList<>();
        for (short v = lowest; v <= highest; v++) {
            headers.add(new short[] {key.requestHeaderVersion(v), key.responseHeaderVersion(v)});
        }
        return Map.of("lowest", lowest, "highest", highest, "key", made.apiKey(),
            "stable", key.messageType.highestSupportedVersion(false), "headers", headers);
    }

    // -- bytes --------------------------------------------------------------------------------

    private static byte[] toBytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("wrote fewer bytes than size() has returned");
        }
        return buffer.array();
    }

    private static Message fromBytes(Kind kind, short version, byte[] bytes) {
        Message read = kind.make();
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        read.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes after the message");
        }
        return read;
    }

    // -- JSON ---------------------------------------------------------------------------------

    private static Message fromJson(Kind kind, short version, JsonNode node) throws Exception {
        Message made = (Message) call(kind.reader, null, node, version);
        applyAdditions(node, made);
        return made;
    }

    private static JsonNode toJson(Kind kind, short version, Message message) throws Exception {
        JsonNode node = (JsonNode) call(kind.writer, null, message, version, true);
        addToJson(node, message);
        return node;
    }

    /** Applies the additions to the JSON to the structures. */
    private static void applyAdditions(JsonNode node, Message message) throws Exception {
        for (Map.Entry<String, JsonNode> each : node.properties()) {
            if (each.getKey().equals(UNKNOWN)) {
                for (JsonNode pair : each.getValue()) {
                    message.unknownTaggedFields().add(
                        new RawTaggedField(pair.get(0).intValue(), pair.get(1).binaryValue()));
                }
            } else if (each.getKey().equals(SETTERS)) {
                for (Map.Entry<String, JsonNode> setter : each.getValue().properties()) {
                    set(message, setter.getKey(), setter.getValue());
                }
            } else {
                applyInnerAdditions(each.getValue(), message, each.getKey());
            }
        }
    }

    private static void applyInnerAdditions(JsonNode value, Message message, String name)
            throws Exception {
        if (value.isObject()) {
            applyAdditions(value, (Message) get(message, name));
        } else if (value.isArray() && value.size() > 0 && value.get(0).isObject()) {
            Iterator<?> structures = ((Collection<?>) get(message, name)).iterator();
            for (JsonNode element : value) {
                applyAdditions(element, (Message) structures.next());
            }
        }
    }

    /** Adds unknown tagged fields and the bytes of records to the JSON. */
    private static void addToJson(JsonNode node, Message message) throws Exception {
        ObjectNode whole = (ObjectNode) node;
        List<String> names = new ArrayList<>();
        whole.fieldNames().forEachRemaining(names::add);
        for (String name : names) {
            JsonNode value = whole.get(name);
            if (value.isObject()) {
                addToJson(value, (Message) get(message, name));
            } else if (value.isArray() && value.size() > 0 && value.get(0).isObject()) {
                Iterator<?> structures = ((Collection<?>) get(message, name)).iterator();
                for (JsonNode element : value) {
                    addToJson(element, (Message) structures.next());
                }
            } else if (value.isBinary() && get(message, name) instanceof MemoryRecords records) {
                ByteBuffer buffer = records.buffer().duplicate();
                byte[] bytes = new byte[buffer.remaining()];
                buffer.get(bytes);
                whole.put(name, bytes);
            }
        }
        List<RawTaggedField> tags = message.unknownTaggedFields();
        if (!tags.isEmpty()) {
            ArrayNode pairs = whole.putArray(UNKNOWN);
            for (RawTaggedField tag : tags) {
                pairs.addArray().add(tag.tag()).add(tag.data());
            }
        }
    }

    // -- classes ------------------------------------------------------------------------------

    /** Class of messages with the methods of its converter. */
    private record Kind(Class<?> type, Method reader, Method writer) {
        Message make() {
            try {
                return (Message) type.getConstructor().newInstance();
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private static Kind kind(JsonNode query) throws ReflectiveOperationException {
        String name = query.get("message").textValue();
        Kind found = KINDS.get(name);
        if (found == null) {
            Class<?> type = type(name);
            Class<?> converter = Class.forName(type.getName() + "JsonConverter");
            found = new Kind(
                type,
                converter.getMethod("read", JsonNode.class, short.class),
                converter.getMethod("write", type, short.class, boolean.class));
            KINDS.put(name, found);
        }
        return found;
    }

    /** Finds a class: FetchRequestData for a message with a key or a header, else the name itself. */
    private static Class<?> type(String name) throws ClassNotFoundException {
        try {
            return Class.forName(PACKAGE + name + "Data");
        } catch (ClassNotFoundException error) {
            return Class.forName(PACKAGE + name);
        }
    }

    private static Object get(Message message, String name) throws Exception {
        Map<String, Method> getters =
            GETTERS.computeIfAbsent(message.getClass(), type -> new HashMap<>());
        Method getter = getters.get(name);
        if (getter == null) {
            getter = message.getClass().getMethod(name);
            getters.put(name, getter);
        }
        return call(getter, message);
    }

    /** Calls a setter with a number or null. */
    private static void set(Message message, String name, JsonNode value) throws Exception {
        String setter = "set" + name.substring(0, 1).toUpperCase(Locale.ROOT) + name.substring(1);
        for (Method method : message.getClass().getMethods()) {
            if (method.getName().equals(setter)) {
                call(method, message, value.isNull() ? null : (Object) value.intValue());
                return;
            }
        }
        throw new NoSuchMethodException(message.getClass() + "." + setter);
    }

    /** Calls a method; throws the method's own exception. */
    private static Object call(Method method, Object target, Object... arguments) throws Exception {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw error;
        }
    }
}
