// Reads and writes record batches with Kafka's classes. Fields that a batch does not have are -1.

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;
import org.apache.kafka.common.utils.internals.CloseableIterator;

final class Records {
    private static final int BUFFER = 1 << 12;
    private static final short VERSION = 0;

    private Records() {
    }

    /** Writes a batch from header fields and records. */
    static byte[] write(JsonNode query) throws IOException {
        JsonNode records = query.get("records");
        byte magic = (byte) query.get("magic").intValue();
        int codec = query.get("codec").intValue();
        long appendTime = number(query, "append_time");
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(BUFFER), magic,
            Compression.of(CompressionType.forId(codec)).build(), timestampType(appendTime >= 0),
            number(records.get(0), "offset"), appendTime, number(query, "producer_id"),
            query.get("producer_epoch").shortValue(), query.get("base_sequence").intValue(),
            query.get("transactional").booleanValue(), false, query.get("leader_epoch").intValue(),
            Integer.MAX_VALUE, number(query, "horizon"));
        for (JsonNode record : records) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.get("headers")) {
                headers.add(new RecordHeader(header.get(0).textValue(), header.get(1).binaryValue()));
            }
            builder.appendWithOffset(
                number(record, "offset"), number(record, "timestamp"),
                record.get("key").binaryValue(), record.get("value").binaryValue(),
                headers.toArray(new Header[0]));
        }
        if (magic >= RecordBatch.MAGIC_VALUE_V2) {
            builder.overrideLastOffset(number(query, "last_offset"));
        }
        return bytes(builder.build().buffer());
    }

    /** Header fields and records of a batch; a record is a list with its headers as pairs. */
    private record Batch(
        int size, byte magic, int codec, int timestampType, boolean transactional, boolean control,
        long baseOffset, long lastOffset, long maxTimestamp, long producerId, short producerEpoch,
        int baseSequence, int leaderEpoch, long horizon, int recordsCount, List<List<Object>> records,
        int controlType, int coordinatorEpoch) {
    }

    /** Reads batches with both of Java's iterators. */
    static List<Batch> read(JsonNode query) throws IOException {
        List<Batch> read = new ArrayList<>();
        for (MutableRecordBatch batch : batches(query).batches()) {
            batch.ensureValid();
            List<Record> records = new ArrayList<>();
            batch.forEach(records::add);
            check(batch, records);
            int type = -1;
            int epoch = -1;
            if (batch.isControlBatch() && !records.isEmpty()) {
                ControlRecordType parsed = ControlRecordType.parse(records.get(0).key());
                type = parsed.type();
                if (parsed == ControlRecordType.COMMIT || parsed == ControlRecordType.ABORT) {
                    epoch = EndTransactionMarker.deserialize(records.get(0)).coordinatorEpoch();
                }
            }
            read.add(new Batch(
                batch.sizeInBytes(), batch.magic(), batch.compressionType().id,
                batch.timestampType().id, batch.isTransactional(), batch.isControlBatch(),
                batch.baseOffset(), batch.lastOffset(), batch.maxTimestamp(), batch.producerId(),
                batch.producerEpoch(), batch.baseSequence(), batch.partitionLeaderEpoch(),
                batch.deleteHorizonMs().orElse(-1),
                batch.countOrNull() == null ? -1 : batch.countOrNull(),
                records.stream().map(Records::fields).toList(), type, epoch));
        }
        return read;
    }

    private static List<Object> fields(Record record) {
        List<List<Object>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), header.value()));
        }
        return Arrays.asList(
            record.offset(), record.timestamp(), bytes(record.key()), bytes(record.value()), headers);
    }

    /** Compares the records of the streaming iterator with those of the other one. */
    private static void check(MutableRecordBatch batch, List<Record> records) {
        try (BufferSupplier buffers = BufferSupplier.create();
             CloseableIterator<Record> streamed = batch.streamingIterator(buffers)) {
            Iterator<Record> expected = records.iterator();
            while (streamed.hasNext()) {
                if (!streamed.next().equals(expected.next())) {
                    throw new IllegalStateException("Java reads a batch in two ways");
                }
            }
            if (expected.hasNext()) {
                throw new IllegalStateException("Java's streaming iterator ends early");
            }
        }
    }

    /** Sets the fields of batches that a leader sets; -1 for no append time. */
    static byte[] assign(JsonNode query) throws IOException {
        long baseOffset = number(query, "base_offset");
        long appendTime = number(query, "append_time");
        MemoryRecords records = batches(query);
        for (MutableRecordBatch batch : records.batches()) {
            batch.setLastOffset(baseOffset + batch.lastOffset() - batch.baseOffset());
            batch.setPartitionLeaderEpoch(query.get("leader_epoch").intValue());
            if (appendTime >= 0) {
                batch.setMaxTimestamp(TimestampType.LOG_APPEND_TIME, appendTime);
            }
        }
        return bytes(records.buffer());
    }

    /** Writes the control batch that ends a transaction. */
    static byte[] marker(JsonNode query) {
        ControlRecordType type = query.get("commit").booleanValue()
            ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return bytes(MemoryRecords.withEndTransactionMarker(
            number(query, "base_offset"), number(query, "timestamp"),
            query.get("leader_epoch").intValue(), number(query, "producer_id"),
            query.get("producer_epoch").shortValue(),
            new EndTransactionMarker(type, query.get("coordinator_epoch").intValue())).buffer());
    }

    /** Writes a control batch of the Raft log. */
    static byte[] control(JsonNode query) throws IOException {
        ControlRecordType type = ControlRecordType.fromTypeId(query.get("kind").shortValue());
        long offset = number(query, "base_offset");
        long time = number(query, "timestamp");
        int epoch = query.get("leader_epoch").intValue();
        byte[] message = query.get("body").binaryValue();
        ByteBufferAccessor body = new ByteBufferAccessor(ByteBuffer.wrap(message));
        ByteBuffer buffer = ByteBuffer.allocate(BUFFER + 2 * message.length);
        MemoryRecords records = switch (type) {
            case LEADER_CHANGE -> MemoryRecords.withLeaderChangeMessage(
                offset, time, epoch, buffer, new LeaderChangeMessage(body, VERSION));
            case SNAPSHOT_HEADER -> MemoryRecords.withSnapshotHeaderRecord(
                offset, time, epoch, buffer, new SnapshotHeaderRecord(body, VERSION));
            case SNAPSHOT_FOOTER -> MemoryRecords.withSnapshotFooterRecord(
                offset, time, epoch, buffer, new SnapshotFooterRecord(body, VERSION));
            case KRAFT_VERSION -> MemoryRecords.withKRaftVersionRecord(
                offset, time, epoch, buffer, new KRaftVersionRecord(body, VERSION));
            case KRAFT_VOTERS -> MemoryRecords.withVotersRecord(
                offset, time, epoch, buffer, new VotersRecord(body, VERSION));
            default -> throw new IllegalArgumentException("no batch of " + type);
        };
        return bytes(records.buffer());
    }

    /** Writes a batch without records, as compaction leaves it to keep the producer's sequence. */
    static byte[] empty(JsonNode query) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            buffer, RecordBatch.CURRENT_MAGIC_VALUE, number(query, "producer_id"),
            query.get("producer_epoch").shortValue(), query.get("base_sequence").intValue(),
            number(query, "base_offset"), number(query, "last_offset"),
            query.get("leader_epoch").intValue(),
            timestampType(query.get("stamped").booleanValue()), number(query, "timestamp"),
            query.get("transactional").booleanValue(), query.get("control").booleanValue());
        return bytes(buffer.flip());
    }

    /** Compacts batches, keeping the records of some offsets. */
    static byte[] compact(JsonNode query) throws IOException {
        Set<Long> kept = new HashSet<>();
        query.get("kept").forEach(offset -> kept.add(offset.longValue()));
        MemoryRecords records = batches(query);
        // With a smaller buffer filterTo would stop early and would have to be called again.
        ByteBuffer room = ByteBuffer.allocate(BUFFER + 2 * records.sizeInBytes());
        MemoryRecords.FilterResult result = records.filterTo(
            new Keep(number(query, "now"), number(query, "retention"), kept), room,
            BufferSupplier.NO_CACHING, Integer.MAX_VALUE);
        return bytes(result.outputBuffer().flip());
    }

    /** Keeps some offsets, and all batches of version 2, even empty ones. */
    private static final class Keep extends MemoryRecords.RecordFilter {
        private final Set<Long> kept;

        Keep(long now, long retention, Set<Long> kept) {
            super(now, retention);
            this.kept = kept;
        }

        @Override
        protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
            boolean modern = batch.magic() >= RecordBatch.MAGIC_VALUE_V2;
            return new BatchRetentionResult(
                modern ? BatchRetention.RETAIN_EMPTY : BatchRetention.DELETE_EMPTY, false);
        }

        @Override
        protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
            return kept.contains(record.offset());
        }
    }

    private static TimestampType timestampType(boolean stamped) {
        return stamped ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
    }

    private static long number(JsonNode query, String name) {
        return query.get(name).longValue();
    }

    private static MemoryRecords batches(JsonNode query) throws IOException {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(query.get("batches").binaryValue()));
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }
}
