// Reads and writes single messages with Kafka's classes. A query frame has several queries, each an
// operation, the name of a message, a version and the operation's arguments; messages_java.py sends
// them.
//
// Messages are the JSON of Kafka's generated converters, with three additions: unknown tagged fields
// under "_unknownTaggedFields" of their structure, as [tag, bytes]; under "_setters" the numbers and
// nulls that no version's JSON can represent; and, in results, the bytes of records, of which the
// converters write only the size.

import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataOutputStream;
import java.io.IOException;
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

public final class Messages {
    private static final String PACKAGE = "org.apache.kafka.common.message.";
    private static final String UNKNOWN = "_unknownTaggedFields";
    private static final String SETTERS = "_setters";
    private static final int MAX_STRING_LENGTH = 1 << 28;

    private static final byte DONE = 0;
    private static final byte REFUSED = 1;
    private static final byte FAILED = 2;

    private static final JsonMapper JSON = mapper();
    private static final Map<String, Kind> KINDS = new HashMap<>();
    private static final Map<Class<?>, Map<String, Method>> GETTERS = new HashMap<>();

    private Messages() {
    }

    public static void main(String[] arguments) throws IOException {
        Frames.serve(Messages::handle);
    }

    private static JsonMapper mapper() {
        JsonMapper made = JsonMapper.builder()
            .enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS)
            .disable(JsonWriteFeature.WRITE_NAN_AS_STRINGS)
            .build();
        made.getFactory().setStreamReadConstraints(
            StreamReadConstraints.builder().maxStringLength(MAX_STRING_LENGTH).build());
        return made;
    }

    private static void handle(ByteBuffer query, DataOutputStream out) throws Exception {
        while (query.hasRemaining()) {
            byte operation = query.get();
            Kind kind = kind(Frames.text(query));
            short version = query.getShort();
            switch (operation) {
                case 'V' -> versions(kind, out);
                case 'J' -> compare(kind, version, query, out);
                case 'E' -> encode(kind, version, query, out);
                default -> throw new IllegalArgumentException("no operation " + operation);
            }
        }
    }

    /** Compares a message, as JSON, with bytes of it: writes our bytes, equality, and their JSON. */
    private static void compare(Kind kind, short version, ByteBuffer query, DataOutputStream out)
            throws Exception {
        byte[] json = Frames.bytes(query);
        byte[] theirs = Frames.bytes(query);
        byte[] ours;
        boolean same;
        byte[] decoded;
        String step = "read the JSON";
        try {
            Message made = fromJson(kind, version, json);
            step = "encode";
            ours = toBytes(made, version);
            step = "decode the other side's bytes";
            Message read = fromBytes(kind, version, theirs);
            same = read.equals(made);
            step = "write the JSON";
            decoded = JSON.writeValueAsBytes(toJson(kind, version, read));
        } catch (RuntimeException | StackOverflowError error) {
            out.writeByte(FAILED);
            Frames.write(out, "could not " + step + ": " + error);
            return;
        }
        out.writeByte(DONE);
        Frames.write(out, ours);
        out.writeBoolean(same);
        Frames.write(out, decoded);
    }

    /** Encodes a message, as JSON of one version, in another: writes the bytes or the error. */
    private static void encode(Kind kind, short version, ByteBuffer query, DataOutputStream out)
            throws Exception {
        short target = query.getShort();
        byte[] json = Frames.bytes(query);
        Message made;
        try {
            made = fromJson(kind, version, json);
        } catch (RuntimeException error) {
            out.writeByte(FAILED);
            Frames.write(out, "could not read the JSON: " + error);
            return;
        }
        try {
            byte[] ours = toBytes(made, target);
            out.writeByte(DONE);
            Frames.write(out, ours);
        } catch (RuntimeException error) {
            out.writeByte(REFUSED);
            Frames.write(out, error.toString());
        }
    }

    /**
     * Writes a message's lowest and highest version and its key, -1 for none; with a key also the
     * highest released version, and the header versions of each version.
     */
    private static void versions(Kind kind, DataOutputStream out) throws IOException {
        ApiMessage made = (ApiMessage) kind.make();
        out.writeShort(made.lowestSupportedVersion());
        out.writeShort(made.highestSupportedVersion());
        out.writeShort(made.apiKey());
        if (made.apiKey() < 0) {
            return;
        }
        ApiKeys key = ApiKeys.forId(made.apiKey());
        out.writeShort(key.messageType.highestSupportedVersion(false));
        for (short v = made.lowestSupportedVersion(); v <= made.highestSupportedVersion(); v++) {
            out.writeByte(key.requestHeaderVersion(v));
            out.writeByte(key.responseHeaderVersion(v));
        }
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

    private static Message fromJson(Kind kind, short version, byte[] json) throws Exception {
        JsonNode node = JSON.readTree(json);
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

    private static Kind kind(String name) throws ReflectiveOperationException {
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
