/* Linked into the kernel that counts its edges: where the counters lie, and which code each counts.
 * Compiled on its own and without instrumentation, which defines the same symbols for itself. */
#include <stdint.h>

extern uint8_t __start___sancov_cntrs[] __attribute__((visibility("hidden")));
extern uint8_t __stop___sancov_cntrs[] __attribute__((visibility("hidden")));
extern uintptr_t __start___sancov_pcs[] __attribute__((visibility("hidden")));

uint8_t *kernel_counters(void) { return __start___sancov_cntrs; }

uint64_t kernel_edges(void) {
  return (uint64_t)(__stop___sancov_cntrs - __start___sancov_cntrs);
}

/* Two numbers an edge: its address, and whether a function begins there. */
uintptr_t *kernel_code(void) { return __start___sancov_pcs; }
