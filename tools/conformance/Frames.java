// Frames on stdin and stdout: a size of four bytes (big endian) and as many bytes, one result frame for
// each query frame, in order. A result begins with a byte: 0, or 1 and the stack trace of an exception
// that no operation has handled.

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

public final class Frames {
    private static final int BUFFER = 1 << 16;

    private Frames() {
    }

    /** Handles one query. */
    public interface Handler {
        /** Reads the query to its end and writes the result. */
        void handle(ByteBuffer query, DataOutputStream result) throws Exception;
    }

    /** Handles queries until stdin ends. Output of Kafka's classes goes to stderr. */
    public static void serve(Handler handler) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, BUFFER));
        DataOutputStream out = new DataOutputStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), BUFFER));
        System.setOut(System.err);
        while (true) {
            int size;
            try {
                size = in.readInt();
            } catch (EOFException end) {
                return;
            }
            ByteBuffer query = ByteBuffer.wrap(in.readNBytes(size));
            ByteArrayOutputStream result = new ByteArrayOutputStream(BUFFER);
            result.write(0);
            try {
                handler.handle(query, new DataOutputStream(result));
            } catch (Exception error) {
                result.reset();
                result.write(1);
                result.write(trace(error).getBytes(StandardCharsets.UTF_8));
            }
            out.writeInt(result.size());
            result.writeTo(out);
            out.flush();
        }
    }

    /** Reads bytes with a length prefix of four bytes from a query. */
    public static byte[] bytes(ByteBuffer query) {
        byte[] read = new byte[query.getInt()];
        query.get(read);
        return read;
    }

    /** Reads a string with a length prefix, in UTF-8, from a query. */
    public static String text(ByteBuffer query) {
        return new String(bytes(query), StandardCharsets.UTF_8);
    }

    /** Writes bytes with a length prefix of four bytes to a result. */
    public static void write(DataOutputStream result, byte[] bytes) throws IOException {
        result.writeInt(bytes.length);
        result.write(bytes);
    }

    /** Writes a string with a length prefix, in UTF-8, to a result. */
    public static void write(DataOutputStream result, String text) throws IOException {
        write(result, text.getBytes(StandardCharsets.UTF_8));
    }

    private static String trace(Exception error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
