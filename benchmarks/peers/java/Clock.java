import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;

/** What the process has used so far. */
final class Clock {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private Clock() {}

    /** CPU time of all threads, in nanoseconds: the compiler's and the collector's too. */
    static long cpu() {
        return SYSTEM.getProcessCpuTime();
    }

    /** The most memory that was resident, in kB. */
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
