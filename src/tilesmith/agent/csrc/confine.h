/* Confinement of a static program: no files, no network, no other programs.  Landlock and seccomp of Linux. */
#pragma once
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define OWN_AUDIT AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define OWN_AUDIT AUDIT_ARCH_AARCH64
#elif defined __riscv && __riscv_xlen == 64
#define OWN_AUDIT AUDIT_ARCH_RISCV64
#elif defined __arm__
#define OWN_AUDIT AUDIT_ARCH_ARM
#else
#error "this processor has no filter of system calls here"
#endif

enum { LANDLOCK_CREATE = 444, LANDLOCK_ADD, LANDLOCK_RESTRICT };

static int has_landlock(void) { return syscall(LANDLOCK_CREATE, NULL, 0, 1) > 0; }

/* Only the program itself may be executed, and nothing read or written by its path. */
static int restrict_files(int program) {
    static const uint8_t known[] = {0, 13, 14, 15, 15, 16};
    long version = syscall(LANDLOCK_CREATE, NULL, 0, 1);
    if (version <= 0)
        return 0; /* the kernel has none */
    uint64_t rules[2] = {(1ull << known[version < 5 ? version : 5]) - 1, version >= 4 ? 3 : 0};
    int held = (int)syscall(LANDLOCK_CREATE, rules, version >= 4 ? 16 : 8, 0);
    struct {
        uint64_t allowed;
        int32_t place;
    } __attribute__((packed)) rule = {1 | 4, program}; /* execute and read */
    if (held < 0 || syscall(LANDLOCK_ADD, held, 1, &rule, 0) || syscall(LANDLOCK_RESTRICT, held, 0))
        return -1;
    close(held);
    return 0;
}

#define ALLOWED(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Calls for memory, threads, clocks and open descriptors, and the one that starts the program.  All others fail. */
static int restrict_calls(void) {
    const uint32_t refused = SECCOMP_RET_ERRNO | EPERM;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_AUDIT, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOWED(read), ALLOWED(write), ALLOWED(readv), ALLOWED(writev), ALLOWED(close), ALLOWED(lseek), ALLOWED(fstat),
        ALLOWED(munmap), ALLOWED(mprotect), ALLOWED(mremap), ALLOWED(madvise), ALLOWED(brk),
#ifdef __NR_mmap
        ALLOWED(mmap),
#endif
#ifdef __NR_mmap2
        ALLOWED(mmap2),
#endif
#ifdef __NR_clock_gettime /* musl names those of 32 bits otherwise */
        ALLOWED(clock_gettime), ALLOWED(clock_nanosleep),
#endif
#ifdef __NR_clock_gettime64 /* processors of 32 bits */
        ALLOWED(clock_gettime64), ALLOWED(clock_nanosleep_time64), ALLOWED(futex_time64), ALLOWED(fstat64), ALLOWED(_llseek),
#endif
#ifdef __ARM_NR_set_tls
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __ARM_NR_set_tls, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __ARM_NR_cacheflush, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
#endif
#ifdef __NR_arch_prctl
        ALLOWED(arch_prctl),
#endif
#ifdef __NR_pread64
        ALLOWED(pread64),
#endif
#ifdef __NR_riscv_flush_icache
        ALLOWED(riscv_flush_icache),
#endif
        ALLOWED(exit), ALLOWED(exit_group), ALLOWED(futex), ALLOWED(set_tid_address), ALLOWED(set_robust_list),
        ALLOWED(rt_sigaction), ALLOWED(rt_sigprocmask), ALLOWED(rt_sigreturn),
        ALLOWED(nanosleep), ALLOWED(sched_yield), ALLOWED(sched_getaffinity), ALLOWED(sched_setaffinity), ALLOWED(gettid),
        ALLOWED(getpid), ALLOWED(getrandom), ALLOWED(getcpu), ALLOWED(membarrier), ALLOWED(execveat),
        /* threads of this process only */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x10000, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, refused),
        BPF_STMT(BPF_RET | BPF_K, refused),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static int confine(int program) {
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || restrict_files(program) || restrict_calls();
}
