/* What a program can ask of callgrind, which runs it, as functions that ctypes can call. Each is a
   few instructions that do nothing where no valgrind is. */

#include <valgrind/callgrind.h>

void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
void dump(void) { CALLGRIND_DUMP_STATS; }
