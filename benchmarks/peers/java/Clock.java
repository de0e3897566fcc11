import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/** CPU time and memory of the process. */
final class Clock {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private Clock() {}

    /** CPU time of all threads in nanoseconds, including compiler and garbage collector. */
    static long cpu() {
        return SYSTEM.getProcessCpuTime();
    }

    /** Peak resident memory in kB. */
    static long peak() {
        try (var lines = Files.lines(Path.of("/proc/self/status"))) {
            return lines.filter(line -> line.startsWith("VmHWM:"))
                    .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")))
                    .findFirst()
                    .orElseThrow();
        } catch (IOException error) {
            return 0;
        }
    }
}
