// Reads and writes record batches with Kafka's classes. A query is one operation; records_java.py
// sends them and describes their arguments and results.

import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
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

public final class Records {
    private static final int BUFFER = 1 << 12;
    private static final short VERSION = 0;

    private Records() {
    }

    public static void main(String[] arguments) throws IOException {
        Frames.serve(Records::handle);
    }

    private static void handle(ByteBuffer query, DataOutputStream out) throws Exception {
        byte operation = query.get();
        switch (operation) {
            case 'W' -> write(query, out);
            case 'R' -> read(query, out);
            case 'A' -> assign(query, out);
            case 'M' -> marker(query, out);
            case 'C' -> control(query, out);
            case 'E' -> empty(query, out);
            case 'F' -> filter(query, out);
            default -> throw new IllegalArgumentException("no operation " + operation);
        }
    }

    /** Writes a batch from header fields and records. */
    private static void write(ByteBuffer query, DataOutputStream out) throws IOException {
        byte magic = query.get();
        Compression codec = Compression.of(CompressionType.forId(query.get())).build();
        TimestampType type = type(query.get());
        long baseOffset = query.getLong();
        long lastOffset = query.getLong();
        long appendTime = query.getLong();
        long producerId = query.getLong();
        short producerEpoch = query.getShort();
        int baseSequence = query.getInt();
        boolean transactional = query.get() != 0;
        int leaderEpoch = query.getInt();
        long horizon = query.getLong();
        ByteBufferOutputStream buffer = new ByteBufferOutputStream(BUFFER);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            buffer, magic, codec, type, baseOffset, appendTime, producerId, producerEpoch,
            baseSequence, transactional, false, leaderEpoch, Integer.MAX_VALUE, horizon);
        int count = query.getInt();
        for (int n = 0; n < count; n++) {
            long offset = query.getLong();
            long timestamp = query.getLong();
            byte[] key = nullable(query);
            byte[] value = nullable(query);
            builder.appendWithOffset(offset, timestamp, key, value, headers(query));
        }
        if (magic >= RecordBatch.MAGIC_VALUE_V2) {
            builder.overrideLastOffset(lastOffset);
        }
        write(out, builder.build());
    }

    private static Header[] headers(ByteBuffer query) {
        Header[] headers = new Header[query.getInt()];
        for (int n = 0; n < headers.length; n++) {
            headers[n] = new RecordHeader(Frames.text(query), nullable(query));
        }
        return headers;
    }

    /** Reads batches with both of Java's iterators: writes header fields and records. */
    private static void read(ByteBuffer query, DataOutputStream out) throws IOException {
        List<MutableRecordBatch> batches = new ArrayList<>();
        MemoryRecords.readableRecords(query.slice()).batches().forEach(batches::add);
        out.writeInt(batches.size());
        for (MutableRecordBatch batch : batches) {
            batch.ensureValid();
            header(batch, out);
            List<Record> records = new ArrayList<>();
            batch.forEach(records::add);
            check(batch, records);
            out.writeInt(records.size());
            for (Record record : records) {
                out.writeLong(record.offset());
                out.writeLong(record.timestamp());
                write(out, record.key());
                write(out, record.value());
                out.writeInt(record.headers().length);
                for (Header header : record.headers()) {
                    Frames.write(out, header.key());
                    write(out, header.value() == null ? null : ByteBuffer.wrap(header.value()));
                }
            }
            writeControlFields(batch, records, out);
        }
    }

    private static void header(MutableRecordBatch batch, DataOutputStream out) throws IOException {
        out.writeInt(batch.sizeInBytes());
        out.writeByte(batch.magic());
        out.writeByte(batch.compressionType().id);
        out.writeByte(batch.timestampType().id);
        out.writeBoolean(batch.isTransactional());
        out.writeBoolean(batch.isControlBatch());
        out.writeLong(batch.baseOffset());
        out.writeLong(batch.lastOffset());
        out.writeLong(batch.maxTimestamp());
        out.writeLong(batch.producerId());
        out.writeShort(batch.producerEpoch());
        out.writeInt(batch.baseSequence());
        out.writeInt(batch.partitionLeaderEpoch());
        out.writeLong(batch.deleteHorizonMs().orElse(-1));
        out.writeInt(batch.countOrNull() == null ? -1 : batch.countOrNull());
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

    /** Writes the type of a control batch and its coordinator epoch, -1 for a value not present. */
    private static void writeControlFields(RecordBatch batch, List<Record> records, DataOutputStream out)
            throws IOException {
        int type = -1;
        int epoch = -1;
        if (batch.isControlBatch() && !records.isEmpty()) {
            ControlRecordType parsed = ControlRecordType.parse(records.get(0).key());
            type = parsed.type();
            if (parsed == ControlRecordType.COMMIT || parsed == ControlRecordType.ABORT) {
                epoch = EndTransactionMarker.deserialize(records.get(0)).coordinatorEpoch();
            }
        }
        out.writeInt(type);
        out.writeInt(epoch);
    }

    /** Sets the fields of a batch that a leader sets; -1 for no append time. */
    private static void assign(ByteBuffer query, DataOutputStream out) throws IOException {
        long baseOffset = query.getLong();
        int leaderEpoch = query.getInt();
        long appendTime = query.getLong();
        MemoryRecords records = MemoryRecords.readableRecords(query.slice());
        for (MutableRecordBatch batch : records.batches()) {
            batch.setLastOffset(baseOffset + batch.lastOffset() - batch.baseOffset());
            batch.setPartitionLeaderEpoch(leaderEpoch);
            if (appendTime >= 0) {
                batch.setMaxTimestamp(TimestampType.LOG_APPEND_TIME, appendTime);
            }
        }
        write(out, records);
    }

    private static void marker(ByteBuffer query, DataOutputStream out) throws IOException {
        long baseOffset = query.getLong();
        long timestamp = query.getLong();
        int leaderEpoch = query.getInt();
        long producerId = query.getLong();
        short producerEpoch = query.getShort();
        boolean commit = query.get() != 0;
        ControlRecordType type = commit ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        EndTransactionMarker marker = new EndTransactionMarker(type, query.getInt());
        write(out, MemoryRecords.withEndTransactionMarker(
            baseOffset, timestamp, leaderEpoch, producerId, producerEpoch, marker));
    }

    /** Writes a control batch of the Raft log. */
    private static void control(ByteBuffer query, DataOutputStream out) throws IOException {
        ControlRecordType type = ControlRecordType.fromTypeId(query.getShort());
        long offset = query.getLong();
        long time = query.getLong();
        int epoch = query.getInt();
        ByteBufferAccessor body = new ByteBufferAccessor(query.slice());
        ByteBuffer buffer = ByteBuffer.allocate(BUFFER + 2 * query.remaining());
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
        write(out, records);
    }

    /** Writes a batch without records, as compaction leaves it to keep the producer's sequence. */
    private static void empty(ByteBuffer query, DataOutputStream out) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        TimestampType type = type(query.get());
        long baseOffset = query.getLong();
        long lastOffset = query.getLong();
        long timestamp = query.getLong();
        long producerId = query.getLong();
        short producerEpoch = query.getShort();
        int baseSequence = query.getInt();
        boolean transactional = query.get() != 0;
        int leaderEpoch = query.getInt();
        boolean isControl = query.get() != 0;
        DefaultRecordBatch.writeEmptyHeader(
            buffer, RecordBatch.CURRENT_MAGIC_VALUE, producerId, producerEpoch, baseSequence,
            baseOffset, lastOffset, leaderEpoch, type, timestamp, transactional, isControl);
        buffer.flip();
        write(out, MemoryRecords.readableRecords(buffer));
    }

    /** Compacts batches, keeping the records of some offsets. */
    private static void filter(ByteBuffer query, DataOutputStream out) throws IOException {
        long now = query.getLong();
        long retention = query.getLong();
        int count = query.getInt();
        Set<Long> kept = new HashSet<>();
        for (int n = 0; n < count; n++) {
            kept.add(query.getLong());
        }
        // With a smaller buffer filterTo would stop early and would have to be called again.
        int room = BUFFER + 2 * query.remaining();
        MemoryRecords records = MemoryRecords.readableRecords(query.slice());
        MemoryRecords.FilterResult result = records.filterTo(
            new Keep(now, retention, kept), ByteBuffer.allocate(room),
            BufferSupplier.NO_CACHING, Integer.MAX_VALUE);
        ByteBuffer filtered = result.outputBuffer();
        filtered.flip();
        write(out, MemoryRecords.readableRecords(filtered));
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

    private static TimestampType type(byte id) {
        return id == TimestampType.CREATE_TIME.id
            ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME;
    }

    private static byte[] nullable(ByteBuffer query) {
        query.mark();
        if (query.getInt() < 0) {
            return null;
        }
        query.reset();
        return Frames.bytes(query);
    }

    private static void write(DataOutputStream out, ByteBuffer bytes) throws IOException {
        if (bytes == null) {
            out.writeInt(-1);
            return;
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        Frames.write(out, copy);
    }

    private static void write(DataOutputStream out, MemoryRecords records) throws IOException {
        write(out, records.buffer());
    }
}
