// Kafka's own classes as judges of record batches. A question is one operation; see
// records_java.py, which asks, for what each takes and gives.

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
        Frames.serve(Records::answer);
    }

    private static void answer(ByteBuffer question, DataOutputStream out) throws Exception {
        byte operation = question.get();
        switch (operation) {
            case 'W' -> write(question, out);
            case 'R' -> read(question, out);
            case 'A' -> assign(question, out);
            case 'M' -> marker(question, out);
            case 'C' -> control(question, out);
            case 'E' -> empty(question, out);
            case 'F' -> filter(question, out);
            default -> throw new IllegalArgumentException("no operation " + operation);
        }
    }

    /** The header's fields and the records of a batch: gives the bytes that Java writes. */
    private static void write(ByteBuffer question, DataOutputStream out) throws IOException {
        byte magic = question.get();
        Compression codec = Compression.of(CompressionType.forId(question.get())).build();
        TimestampType type = type(question.get());
        long baseOffset = question.getLong();
        long lastOffset = question.getLong();
        long appendTime = question.getLong();
        long producerId = question.getLong();
        short producerEpoch = question.getShort();
        int baseSequence = question.getInt();
        boolean transactional = question.get() != 0;
        int leaderEpoch = question.getInt();
        long horizon = question.getLong();
        ByteBufferOutputStream buffer = new ByteBufferOutputStream(BUFFER);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            buffer, magic, codec, type, baseOffset, appendTime, producerId, producerEpoch,
            baseSequence, transactional, false, leaderEpoch, Integer.MAX_VALUE, horizon);
        int count = question.getInt();
        for (int n = 0; n < count; n++) {
            long offset = question.getLong();
            long timestamp = question.getLong();
            byte[] key = nullable(question);
            byte[] value = nullable(question);
            builder.appendWithOffset(offset, timestamp, key, value, headers(question));
        }
        if (magic >= RecordBatch.MAGIC_VALUE_V2) {
            builder.overrideLastOffset(lastOffset);
        }
        write(out, builder.build());
    }

    private static Header[] headers(ByteBuffer question) {
        Header[] headers = new Header[question.getInt()];
        for (int n = 0; n < headers.length; n++) {
            headers[n] = new RecordHeader(Frames.text(question), nullable(question));
        }
        return headers;
    }

    /** Batches: gives each one's header and records, read in both of Java's ways. */
    private static void read(ByteBuffer question, DataOutputStream out) throws IOException {
        List<MutableRecordBatch> batches = new ArrayList<>();
        MemoryRecords.readableRecords(question.slice()).batches().forEach(batches::add);
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
            said(batch, records, out);
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

    /** What is read while it is decompressed must be what is read at once. */
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

    /** The type of a control batch and the coordinator's epoch in it, each -1 if there is none. */
    private static void said(RecordBatch batch, List<Record> records, DataOutputStream out)
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

    /** A batch and what a leader sets in it, with -1 for no time: gives the changed bytes. */
    private static void assign(ByteBuffer question, DataOutputStream out) throws IOException {
        long baseOffset = question.getLong();
        int leaderEpoch = question.getInt();
        long appendTime = question.getLong();
        MemoryRecords records = MemoryRecords.readableRecords(question.slice());
        for (MutableRecordBatch batch : records.batches()) {
            batch.setLastOffset(baseOffset + batch.lastOffset() - batch.baseOffset());
            batch.setPartitionLeaderEpoch(leaderEpoch);
            if (appendTime >= 0) {
                batch.setMaxTimestamp(TimestampType.LOG_APPEND_TIME, appendTime);
            }
        }
        write(out, records);
    }

    private static void marker(ByteBuffer question, DataOutputStream out) throws IOException {
        long baseOffset = question.getLong();
        long timestamp = question.getLong();
        int leaderEpoch = question.getInt();
        long producerId = question.getLong();
        short producerEpoch = question.getShort();
        boolean commit = question.get() != 0;
        ControlRecordType type = commit ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        EndTransactionMarker marker = new EndTransactionMarker(type, question.getInt());
        write(out, MemoryRecords.withEndTransactionMarker(
            baseOffset, timestamp, leaderEpoch, producerId, producerEpoch, marker));
    }

    /** A control record of the Raft log, and the body of its message. */
    private static void control(ByteBuffer question, DataOutputStream out) throws IOException {
        ControlRecordType type = ControlRecordType.fromTypeId(question.getShort());
        long offset = question.getLong();
        long time = question.getLong();
        int epoch = question.getInt();
        ByteBufferAccessor body = new ByteBufferAccessor(question.slice());
        ByteBuffer buffer = ByteBuffer.allocate(BUFFER + 2 * question.remaining());
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

    /** A batch that compaction has left without records, to keep its producer's sequence. */
    private static void empty(ByteBuffer question, DataOutputStream out) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        TimestampType type = type(question.get());
        long baseOffset = question.getLong();
        long lastOffset = question.getLong();
        long timestamp = question.getLong();
        long producerId = question.getLong();
        short producerEpoch = question.getShort();
        int baseSequence = question.getInt();
        boolean transactional = question.get() != 0;
        int leaderEpoch = question.getInt();
        boolean isControl = question.get() != 0;
        DefaultRecordBatch.writeEmptyHeader(
            buffer, RecordBatch.CURRENT_MAGIC_VALUE, producerId, producerEpoch, baseSequence,
            baseOffset, lastOffset, leaderEpoch, type, timestamp, transactional, isControl);
        buffer.flip();
        write(out, MemoryRecords.readableRecords(buffer));
    }

    /** Batches, and the offsets of what compaction is to leave of them. */
    private static void filter(ByteBuffer question, DataOutputStream out) throws IOException {
        long now = question.getLong();
        long retention = question.getLong();
        int count = question.getInt();
        Set<Long> kept = new HashSet<>();
        for (int n = 0; n < count; n++) {
            kept.add(question.getLong());
        }
        // Where there is too little room it stops early, for the cleaner to go on.
        int room = BUFFER + 2 * question.remaining();
        MemoryRecords records = MemoryRecords.readableRecords(question.slice());
        MemoryRecords.FilterResult result = records.filterTo(
            new Keep(now, retention, kept), ByteBuffer.allocate(room),
            BufferSupplier.NO_CACHING, Integer.MAX_VALUE);
        ByteBuffer filtered = result.outputBuffer();
        filtered.flip();
        write(out, MemoryRecords.readableRecords(filtered));
    }

    /** Keeps some offsets, and every batch of version 2, be it empty. */
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

    private static byte[] nullable(ByteBuffer question) {
        question.mark();
        if (question.getInt() < 0) {
            return null;
        }
        question.reset();
        return Frames.bytes(question);
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
