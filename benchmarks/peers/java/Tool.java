import java.io.OutputStream;
import java.io.PrintStream;
import java.util.Arrays;

/**
 * Runs a command-line tool of Kafka. Prefixes each line of its output with CPU nanoseconds, peak kB
 * and a tab. Arguments: the class of the tool, and the arguments of the tool.
 */
final class Tool {
    private Tool() {}

    public static void main(String[] arguments) throws Exception {
        Class<?> tool = Class.forName(arguments[0]);
        System.setOut(new Lines(System.out));
        String[] its = Arrays.copyOfRange(arguments, 1, arguments.length);
        tool.getMethod("main", String[].class).invoke(null, (Object) its);
    }

    private static final class Lines extends PrintStream {
        private final PrintStream out;

        Lines(PrintStream out) {
            super(OutputStream.nullOutputStream());
            this.out = out;
        }

        @Override
        public void println(String line) {
            print(line + "\n");
        }

        @Override
        public void print(String text) {
            out.print(Clock.cpu() + " " + Clock.peak() + "\t" + text);
            out.flush();
        }

        @Override
        public PrintStream printf(String format, Object... values) {
            print(String.format(format, values));
            return this;
        }
    }
}
