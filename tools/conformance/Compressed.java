// Decompresses the records sections of batches with Kafka's classes.

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;

final class Compressed {
    private static final int PIECE = 1 << 16;

    private Compressed() {
    }

    /** Returns the decompressed bytes, read to the end as a batch is; or the error of refused data. */
    static Object decompress(JsonNode query) throws IOException {
        Compression codec = Compression.of(CompressionType.forId(query.get("codec").intValue())).build();
        ByteBuffer data = ByteBuffer.wrap(query.get("data").binaryValue());
        try (BufferSupplier buffers = BufferSupplier.create();
             InputStream stream = codec.wrapForInput(data, RecordBatch.MAGIC_VALUE_V2, buffers)) {
            return Map.of("bytes", readToEnd(stream));
        } catch (Exception | Error error) {
            return Map.of("refused", String.valueOf(error));
        }
    }

    /** Reads until the end; unlike readAllBytes it goes on after an empty block of lz4, which gives 0 bytes. */
    private static byte[] readToEnd(InputStream stream) throws IOException {
        ByteArrayOutputStream whole = new ByteArrayOutputStream();
        byte[] piece = new byte[PIECE];
        for (int size = stream.read(piece); size >= 0; size = stream.read(piece)) {
            whole.write(piece, 0, size);
        }
        return whole.toByteArray();
    }
}
