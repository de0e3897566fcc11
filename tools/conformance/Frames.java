// How the judges talk: frames on stdin and stdout, each four bytes of size (big endian) and as many
// bytes, one answer for every question, in order. An answer begins with a byte: 0, or 1 and then the
// stack trace of what went wrong with the whole frame.

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

    /** Answers one question. */
    public interface Handler {
        /** Reads the question to its end and writes the answer. */
        void answer(ByteBuffer question, DataOutputStream answer) throws Exception;
    }

    /** Answers questions until stdin ends. What the classes print goes to stderr. */
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
            ByteBuffer question = ByteBuffer.wrap(in.readNBytes(size));
            ByteArrayOutputStream answer = new ByteArrayOutputStream(BUFFER);
            answer.write(0);
            try {
                handler.answer(question, new DataOutputStream(answer));
            } catch (Exception error) {
                answer.reset();
                answer.write(1);
                answer.write(trace(error).getBytes(StandardCharsets.UTF_8));
            }
            out.writeInt(answer.size());
            answer.writeTo(out);
            out.flush();
        }
    }

    /** The next bytes of a question: four bytes of size, then they. */
    public static byte[] bytes(ByteBuffer question) {
        byte[] read = new byte[question.getInt()];
        question.get(read);
        return read;
    }

    /** The next text of a question: like bytes, in UTF-8. */
    public static String text(ByteBuffer question) {
        return new String(bytes(question), StandardCharsets.UTF_8);
    }

    /** Adds bytes to an answer: four bytes of size, then they. */
    public static void write(DataOutputStream answer, byte[] bytes) throws IOException {
        answer.writeInt(bytes.length);
        answer.write(bytes);
    }

    /** Adds text to an answer: like bytes, in UTF-8. */
    public static void write(DataOutputStream answer, String text) throws IOException {
        write(answer, text.getBytes(StandardCharsets.UTF_8));
    }

    private static String trace(Exception error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
