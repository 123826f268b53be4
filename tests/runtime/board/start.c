/* What runs before `main` on the emulated boards: memory, the coprocessor of floats, and the functions through which
 * the C library reaches the host. */
#include <stdlib.h>

extern int main(void);
extern void initialise_monitor_handles(void);
extern unsigned data_source[], data_begin[], data_end[], zero_begin[], zero_end[], stack_end[];

void _init(void) {}
void _fini(void) {}

void start(void) {
    unsigned *from = data_source;
    for (unsigned *to = data_begin; to < data_end; to++)
        *to = *from++;
    for (unsigned *to = zero_begin; to < zero_end; to++)
        *to = 0;
#ifdef __ARM_FP
    *(volatile unsigned *)0xE000ED88u |= 0xFu << 20;
    __asm__ volatile("dsb\n\tisb");
#endif
    initialise_monitor_handles();
    exit(main());
}

static void fault(void) { _Exit(99); }

__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    stack_end, (void *)start, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault,
};
