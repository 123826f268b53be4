/* Which programs a processor can run: part of model.c. */
#ifndef TILESMITH_PROCESSOR_H
#define TILESMITH_PROCESSOR_H

#include "tilesmith_model.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };
/* Parts of the processor's state that the operating system must save, as bits of XCR0. */
enum { NO_STATE = 0, YMM = 0x6, ZMM = 0xE6, TILES = 0x60000 };

struct feature {
    const char *name;
    uint32_t leaf, subleaf;
    int where;
    int bit;
    uint64_t state;
};

/* Where `cpuid` reports what generated code may use (Intel's and AMD's manuals).  Others are part of x86-64, or no
 * instruction that LLVM chooses by itself. */
static const struct feature FEATURES[] = {
    {"sse3", 1, 0, ECX, 0, NO_STATE},         {"ssse3", 1, 0, ECX, 9, NO_STATE},
    {"fma", 1, 0, ECX, 12, YMM},              {"cx16", 1, 0, ECX, 13, NO_STATE},
    {"sse4.1", 1, 0, ECX, 19, NO_STATE},      {"sse4.2", 1, 0, ECX, 20, NO_STATE},
    {"movbe", 1, 0, ECX, 22, NO_STATE},       {"popcnt", 1, 0, ECX, 23, NO_STATE},
    {"avx", 1, 0, ECX, 28, YMM},              {"f16c", 1, 0, ECX, 29, YMM},
    {"bmi", 7, 0, EBX, 3, NO_STATE},          {"avx2", 7, 0, EBX, 5, YMM},
    {"bmi2", 7, 0, EBX, 8, NO_STATE},         {"avx512f", 7, 0, EBX, 16, ZMM},
    {"avx512dq", 7, 0, EBX, 17, ZMM},         {"adx", 7, 0, EBX, 19, NO_STATE},
    {"avx512ifma", 7, 0, EBX, 21, ZMM},       {"avx512cd", 7, 0, EBX, 28, ZMM},
    {"avx512bw", 7, 0, EBX, 30, ZMM},         {"avx512vl", 7, 0, EBX, 31, ZMM},
    {"avx512vbmi", 7, 0, ECX, 1, ZMM},        {"avx512vbmi2", 7, 0, ECX, 6, ZMM},
    {"gfni", 7, 0, ECX, 8, NO_STATE},         {"avx512vnni", 7, 0, ECX, 11, ZMM},
    {"avx512bitalg", 7, 0, ECX, 12, ZMM},     {"avx512vpopcntdq", 7, 0, ECX, 14, ZMM},
    {"amx-bf16", 7, 0, EDX, 22, TILES},       {"avx512fp16", 7, 0, EDX, 23, ZMM},
    {"amx-tile", 7, 0, EDX, 24, TILES},       {"amx-int8", 7, 0, EDX, 25, TILES},
    {"avxvnni", 7, 1, EAX, 4, YMM},           {"avx512bf16", 7, 1, EAX, 5, ZMM},
    {"amx-fp16", 7, 1, EAX, 21, TILES},       {"avxvnniint8", 7, 1, EDX, 4, YMM},
    {"lzcnt", 0x80000001, 0, ECX, 5, NO_STATE}, {"sse4a", 0x80000001, 0, ECX, 6, NO_STATE},
};

/* What the processor reported.  Each `cpuid` is asked once: under a hypervisor one takes microseconds. */
struct processor {
    uint64_t states;
    struct {
        uint32_t leaf, subleaf, is_known, r[4];
    } leaves[8];
};

static uint64_t saved_states(void) {
    uint32_t r[4], low, high;
    if (!__get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) || !(r[ECX] >> 27 & 1))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* The four registers of a leaf; zeros if the processor does not have it. */
static const uint32_t *reported(struct processor *processor, uint32_t leaf, uint32_t subleaf) {
    size_t i = 0;
    while (processor->leaves[i].is_known && (processor->leaves[i].leaf != leaf || processor->leaves[i].subleaf != subleaf))
        i++;
    uint32_t *r = processor->leaves[i].r;
    if (!processor->leaves[i].is_known) {
        processor->leaves[i].leaf = leaf;
        processor->leaves[i].subleaf = subleaf;
        processor->leaves[i].is_known = 1;
        if (!__get_cpuid_count(leaf, subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]))
            memset(r, 0, sizeof processor->leaves[i].r);
    }
    return r;
}

static void ask(struct processor *processor) {
    memset(processor, 0, sizeof *processor);
    processor->states = saved_states();
}

static int has_feature(struct processor *processor, const char *name) {
    for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++) {
        const struct feature *f = &FEATURES[i];
        if (!strcmp(f->name, name))
            return (reported(processor, f->leaf, f->subleaf)[f->where] >> f->bit & 1) &&
                   (processor->states & f->state) == f->state;
    }
    return 1;
}
#else
struct processor {
    int unused;
};

static void ask(struct processor *processor) { (void)processor; }

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Bits of AT_HWCAP and AT_HWCAP2 (the kernel's asm/hwcap.h); features that are not here are part of Armv8.0. */
static const struct {
    const char *name;
    unsigned long type, bit;
} FEATURES[] = {
    {"crc", AT_HWCAP, 7},      {"lse", AT_HWCAP, 8},    {"fullfp16", AT_HWCAP, 10}, {"rdm", AT_HWCAP, 12},
    {"dotprod", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},   {"fp16fml", AT_HWCAP, 23},  {"sve2", AT_HWCAP2, 1},
    {"i8mm", AT_HWCAP2, 13},   {"bf16", AT_HWCAP2, 14},
};

static int has_feature(struct processor *processor, const char *name) {
    (void)processor;
    for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++)
        if (!strcmp(FEATURES[i].name, name))
            return getauxval(FEATURES[i].type) >> FEATURES[i].bit & 1;
    return 1;
}
#elif defined(__riscv) && defined(__linux__)
#include <sys/auxv.h>

/* AT_HWCAP has a bit for each extension of one letter.  Those with longer names come with such a one. */
static int has_feature(struct processor *processor, const char *name) {
    (void)processor;
    if (name[0] < 'a' || name[0] > 'z' || name[1])
        return 1;
    return getauxval(AT_HWCAP) >> (name[0] - 'a') & 1;
}
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>

static const struct {
    const char *name, *key;
} FEATURES[] = {
    {"fullfp16", "hw.optional.arm.FEAT_FP16"}, {"dotprod", "hw.optional.arm.FEAT_DotProd"},
    {"i8mm", "hw.optional.arm.FEAT_I8MM"},     {"bf16", "hw.optional.arm.FEAT_BF16"},
};

static int has_feature(struct processor *processor, const char *name) {
    (void)processor;
    for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++)
        if (!strcmp(FEATURES[i].name, name)) {
            int found = 0;
            size_t size = sizeof found;
            return !sysctlbyname(FEATURES[i].key, &found, &size, NULL, 0) && found;
        }
    return 1;
}
#elif defined(__aarch64__) && defined(_WIN32)
#include <windows.h>

/* The numbers of winnt.h, whose older editions lack the names of most.  Where Windows itself is older than a number,
   its answer is no.  It has none for rdm, which Armv8.1 brought along with lse. */
static const struct {
    const char *name;
    DWORD number;
} FEATURES[] = {
    {"crc", 31}, {"lse", 34}, {"rdm", 34}, {"dotprod", 43}, {"sve", 46}, {"sve2", 47}, {"i8mm", 66}, {"fullfp16", 67},
    {"bf16", 68},
};

static int has_feature(struct processor *processor, const char *name) {
    (void)processor;
    for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++)
        if (!strcmp(FEATURES[i].name, name))
            return IsProcessorFeaturePresent(FEATURES[i].number) != 0;
    return strcmp(name, "fp16fml") != 0; /* no number either, and Armv8.0 lacks it */
}
#else
/* Elsewhere the loader of the operating system decides what a library is for. */
static int has_feature(struct processor *processor, const char *name) {
    (void)processor, (void)name;
    return 1;
}
#endif
#endif

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
/* Linux gives tiles to processes that asked for them. */
static int has_permission(const struct tilesmith_program *program) {
    const long request = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    for (const char *const *name = program->features; *name; name++)
        if (!strcmp(*name, "amx-tile"))
            return syscall(SYS_arch_prctl, request, tile_data) == 0;
    return 1;
}
#else
static int has_permission(const struct tilesmith_program *program) {
    (void)program;
    return 1;
}
#endif

static int runs_here(struct processor *processor, const struct tilesmith_program *program) {
    for (const char *const *name = program->features; *name; name++)
        if (!has_feature(processor, *name))
            return 0;
    return has_permission(program);
}

#endif
