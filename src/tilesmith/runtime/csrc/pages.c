/* Which pages of memory were written: asked of Linux 6.7 and later, which notes it without a fault that a program sees.
 *
 * A userfaultfd registers memory for asynchronous write protection.  PAGEMAP_SCAN finds the pages that were written
 * and protects them again, both in one step.  A write to a protected page costs its thread one fault in the kernel.
 *
 * What is said here must never be "unwritten" of a page that was written.  So:
 * - Only private memory without a file is watched: others write the pages of files and of shared memory through
 *   mappings of their own.  No memory is watched in a process of which drivers have pinned pages for good: devices
 *   write these unseen.  Pages that are pinned later count as written then.
 * - Memory that was unmapped and mapped again, moved or unregistered is not registered: the scan fails (CHECK_WPASYNC).
 * - Pages that are absent count as written.  MADV_DONTNEED empties memory and takes the protection with it.
 * - Ranges that overlap belong to one process: whoever protects pages again, moves all ranges with written pages on to
 *   a new generation.
 * - A child of a fork has no registrations, but descriptors that ask about its parent.  A page that is empty in every
 *   child tells.  Descriptors that the process closed, whose numbers may be other files', are told by their inodes.
 * - The system is tried once on pages of our own, and believed if it saw every write.
 *
 * The kernel's headers may be older than the kernel, so that its structures are written here.
 */
#include "python.h"

#include "pages.h"

#if defined(__linux__) && (defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__) || defined(__riscv)))

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef SYS_userfaultfd
#define USERFAULTFD SYS_userfaultfd
#elif defined(__x86_64__)
#define USERFAULTFD 323
#else
#define USERFAULTFD 282
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* linux/userfaultfd.h */
struct uffd_api {
    uint64_t api, features, ioctls;
};
struct uffd_range {
    uint64_t start, len;
};
struct uffd_register {
    struct uffd_range range;
    uint64_t mode, ioctls;
};
#define UFFD_API UINT64_C(0xAA)
#define UFFD_USER_MODE_ONLY 1
#define UFFD_WP_UNPOPULATED (UINT64_C(1) << 13)
#define UFFD_WP_ASYNC (UINT64_C(1) << 15)
#define UFFD_MODE_WP (UINT64_C(1) << 1)
#define UFFDIO_API_ _IOWR(0xAA, 0x3F, struct uffd_api)
#define UFFDIO_REGISTER_ _IOWR(0xAA, 0x00, struct uffd_register)
#define UFFDIO_UNREGISTER_ _IOR(0xAA, 0x01, struct uffd_range)

/* linux/fs.h */
struct page_region {
    uint64_t start, end, categories;
};
struct pm_scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any_of, wanted;
};
#define PM_PROTECT (UINT64_C(1) << 0)     /* PM_SCAN_WP_MATCHING */
#define PM_REGISTERED (UINT64_C(1) << 1)  /* PM_SCAN_CHECK_WPASYNC */
#define PAGE_WRITTEN (UINT64_C(1) << 1)   /* PAGE_IS_WRITTEN */
#define PAGE_PRESENT (UINT64_C(1) << 3)   /* PAGE_IS_PRESENT */
#define PAGEMAP_SCAN_ _IOWR('f', 16, struct pm_scan)

#define MOST 4096 /* ranges: each may add two mappings, of which a process may have 65,530 */

struct tilesmith_watch {
    uintptr_t first, end;
    uint64_t generation;
    Py_ssize_t users;
};

static struct {
    enum { UNTRIED, WORKS, FAILS } state;
    int uffd, pagemap;
    dev_t uffd_device, pagemap_device;
    ino_t uffd_inode, pagemap_inode;
    volatile uint64_t *mark; /* not 0, but in a child that was forked since */
    uintptr_t page;
    uint64_t generations;
    Watch **watches;
    Py_ssize_t count, room;
} tracker = {.uffd = -1, .pagemap = -1};

static int note(int fd, dev_t *device, ino_t *inode) {
    struct stat found;
    if (fd < 0 || fstat(fd, &found) != 0)
        return 0;
    *device = found.st_dev;
    *inode = found.st_ino;
    return 1;
}

static int is_still(int fd, dev_t device, ino_t inode) {
    dev_t found_device;
    ino_t found_inode;
    return note(fd, &found_device, &found_inode) && found_device == device && found_inode == inode;
}

static int uffd_is_still(void) { return is_still(tracker.uffd, tracker.uffd_device, tracker.uffd_inode); }

static int pagemap_is_still(void) {
    return is_still(tracker.pagemap, tracker.pagemap_device, tracker.pagemap_inode);
}

/* The first regions of pages that were written or are absent: how many, negative where pages are not registered, or
 * where the call failed in another way, EINTR included: then nothing is known. */
static int scan(struct pm_scan *pass, uintptr_t first, uintptr_t end, struct page_region *found, int count,
                 uint64_t flags) {
    *pass = (struct pm_scan){.size = sizeof *pass,
                             .flags = flags | PM_REGISTERED,
                             .start = first,
                             .end = end,
                             .vec = (uint64_t)(uintptr_t)found,
                             .vec_len = (uint64_t)count,
                             .max_pages = flags & PM_PROTECT ? 0 : 1,
                             .inverted = PAGE_PRESENT,
                             .any_of = PAGE_WRITTEN | PAGE_PRESENT,
                             .wanted = PAGE_WRITTEN};
    return ioctl(tracker.pagemap, PAGEMAP_SCAN_, pass);
}

static int is_unwritten(uintptr_t first, uintptr_t end) {
    struct pm_scan pass;
    struct page_region found;
    return scan(&pass, first, end, &found, 1, 0) == 0;
}

/* Ranges with pages from `first` up to `end` were written. */
static void note_written(uintptr_t first, uintptr_t end) {
    tracker.generations++;
    for (Py_ssize_t i = 0; i < tracker.count; i++)
        if (tracker.watches[i]->first < end && first < tracker.watches[i]->end)
            tracker.watches[i]->generation = tracker.generations;
}

/* Protect pages that are registered.  Those found written are noted for all ranges: nobody else sees them again. */
static int protect(uintptr_t first, uintptr_t end) {
    while (first < end) {
        struct page_region found[32];
        struct pm_scan pass;
        int count = scan(&pass, first, end, found, 32, PM_PROTECT);
        if (count < 0) {
            note_written(first, end);
            return 0;
        }
        for (int i = 0; i < count; i++)
            note_written(found[i].start, found[i].end);
        if (pass.walk_end <= first)
            return 0;
        first = pass.walk_end;
    }
    return 1;
}

/* Ranges that have lost their registration were mapped again: note it before others register these pages anew.  Pages
 * that move with mremap keep their protection in some kernels (before 6.13), and would seem unwritten then. */
static void note_lost(uintptr_t first, uintptr_t end) {
    for (Py_ssize_t i = 0; i < tracker.count; i++) {
        Watch *watch = tracker.watches[i];
        struct pm_scan pass;
        struct page_region found;
        if (watch->first < end && first < watch->end && scan(&pass, watch->first, watch->end, &found, 1, 0) < 0)
            watch->generation = ++tracker.generations;
    }
}

static int enroll(uintptr_t first, uintptr_t end) {
    struct uffd_register pages = {.range = {first, end - first}, .mode = UFFD_MODE_WP};
    return ioctl(tracker.uffd, UFFDIO_REGISTER_, &pages) >= 0;
}

static void dismiss(uintptr_t first, uintptr_t end) {
    struct pm_scan pass;
    struct page_region found;
    struct uffd_range pages = {first, end - first};
    /* memory that was mapped again may be registered by others, and is left alone */
    if (uffd_is_still() && pagemap_is_still() && scan(&pass, first, end, &found, 1, 0) >= 0)
        (void)ioctl(tracker.uffd, UFFDIO_UNREGISTER_, &pages);
}

/* Whether the system sees writes of programs and of its own calls, and memory that was emptied. */
static int sees_writes(void) {
    uintptr_t page = tracker.page, bytes = 4 * page;
    char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return 0;
    uintptr_t first = (uintptr_t)pages, end = first + bytes;
    volatile char *memory = pages;
    memory[0] = memory[page] = memory[2 * page] = 1; /* the last page is never written */
    int sees = enroll(first, end) && !is_unwritten(first, end) && protect(first, end);
    char read = memory[3 * page];
    sees = sees && protect(first, end) && is_unwritten(first, end);
    memory[page] = 2;
    sees = sees && !is_unwritten(first, end) && is_unwritten(first, first + page) && protect(first, end);
    sees = sees && is_unwritten(first, end) && memory[page] == 2;
    memory[3 * page] = read;
    sees = sees && !is_unwritten(first, end) && protect(first, end) && is_unwritten(first, end);
    sees = sees && fstat(tracker.pagemap, (struct stat *)pages) == 0 && !is_unwritten(first, end);
    sees = sees && protect(first, end) && is_unwritten(first, end);
    sees = sees && madvise(pages, page, MADV_DONTNEED) == 0 && !is_unwritten(first, end);
    read = memory[0];
    sees = sees && read == 0 && !is_unwritten(first, end);
    munmap(pages, bytes);
    return sees;
}

static int begin(void) {
    long page = sysconf(_SC_PAGESIZE);
    if (page <= 0)
        return 0;
    tracker.page = (uintptr_t)page;
    if (tracker.mark == NULL) {
        void *mark = mmap(NULL, tracker.page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mark == MAP_FAILED)
            return 0;
        if (madvise(mark, tracker.page, MADV_WIPEONFORK) != 0) {
            munmap(mark, tracker.page);
            return 0;
        }
        tracker.mark = mark;
    }
    *tracker.mark = 1;
    struct uffd_api api = {.api = UFFD_API, .features = UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED};
    tracker.uffd = (int)syscall(USERFAULTFD, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    tracker.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (note(tracker.uffd, &tracker.uffd_device, &tracker.uffd_inode) &&
        note(tracker.pagemap, &tracker.pagemap_device, &tracker.pagemap_inode) &&
        ioctl(tracker.uffd, UFFDIO_API_, &api) >= 0 && sees_writes())
        return 1;
    if (tracker.uffd >= 0)
        close(tracker.uffd);
    if (tracker.pagemap >= 0)
        close(tracker.pagemap);
    return 0;
}

uintptr_t tilesmith_page_bytes(void) {
    if (tracker.state != UNTRIED && tracker.mark != NULL && *tracker.mark == 0) {
        /* the child of a fork, whose descriptors ask about its parent */
        if (uffd_is_still())
            close(tracker.uffd);
        if (pagemap_is_still())
            close(tracker.pagemap);
        tracker.uffd = tracker.pagemap = -1;
        note_written(0, UINTPTR_MAX);
        tracker.state = UNTRIED;
    }
    if (tracker.state == UNTRIED)
        tracker.state = begin() ? WORKS : FAILS;
    return tracker.state == WORKS ? tracker.page : 0;
}

int tilesmith_pages_answer(void) {
    if (tilesmith_page_bytes() == 0)
        return 0;
    if (pagemap_is_still())
        return 1;
    tracker.state = FAILS; /* the process closes descriptors that it doesn't know */
    return 0;
}

/* Whether pages of the process are pinned for longer than a call, or locked, which drivers count instead. */
static int has_pinned_pages(void) {
    FILE *status = fopen("/proc/self/status", "re");
    char line[256];
    unsigned long long pinned = 1, locked = 1; /* where it isn't known */
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        (void)sscanf(line, "VmPin: %llu", &pinned);
        (void)sscanf(line, "VmLck: %llu", &locked);
    }
    if (status != NULL)
        fclose(status);
    return pinned != 0 || locked != 0;
}

/* Memory of mappings that have no file and belong to this process alone, in the order of addresses. */
struct tilesmith_survey {
    size_t count, room;
    struct {
        uintptr_t first, end;
    } * areas;
};

/* Note an area.  Areas that meet are one. */
static int append(Survey *survey, uintptr_t first, uintptr_t end) {
    if (survey->count > 0 && survey->areas[survey->count - 1].end == first) {
        survey->areas[survey->count - 1].end = end;
        return 1;
    }
    if (survey->count == survey->room) {
        size_t room = survey->room ? 2 * survey->room : 256;
        void *larger = realloc(survey->areas, room * sizeof *survey->areas);
        if (larger == NULL)
            return 0;
        survey->areas = larger;
        survey->room = room;
    }
    survey->areas[survey->count].first = first;
    survey->areas[survey->count++].end = end;
    return 1;
}

Survey *tilesmith_survey(void) {
    if (!tilesmith_pages_answer() || !uffd_is_still() || has_pinned_pages())
        return NULL;
    Survey *survey = calloc(1, sizeof *survey);
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512]; /* 7f00-7f40 rw-p 00000000 00:00 0 [name]: of a longer line the rest is no such line */
    while (survey != NULL && maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long first, end, inode;
        char rights[5];
        if (sscanf(line, "%llx-%llx %4s %*s %*s %llu", &first, &end, rights, &inode) != 4)
            continue;
        if (inode == 0 && rights[0] == 'r' && rights[3] == 'p' && !append(survey, (uintptr_t)first, (uintptr_t)end))
            break;
    }
    if (maps != NULL)
        fclose(maps);
    return survey;
}

void tilesmith_survey_free(Survey *survey) {
    if (survey != NULL)
        free(survey->areas);
    free(survey);
}

static int is_private(const Survey *survey, uintptr_t first, uintptr_t end) {
    size_t low = 0, high = survey->count; /* the last area that begins at `first` or before is sought */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (survey->areas[middle].first <= first)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && end <= survey->areas[low - 1].end;
}

/* The range with these pages, made if there is none. */
static Watch *range_of(uintptr_t first, uintptr_t end) {
    for (Py_ssize_t i = 0; i < tracker.count; i++)
        if (tracker.watches[i]->first == first && tracker.watches[i]->end == end)
            return tracker.watches[i];
    if (tracker.count >= MOST)
        return NULL;
    if (tracker.count == tracker.room) {
        Py_ssize_t room = tracker.room ? 2 * tracker.room : 64;
        Watch **larger = realloc(tracker.watches, (size_t)room * sizeof(Watch *));
        if (larger == NULL)
            return NULL;
        tracker.watches = larger;
        tracker.room = room;
    }
    Watch *made = malloc(sizeof(Watch));
    if (made == NULL)
        return NULL;
    *made = (Watch){.first = first, .end = end, .generation = ++tracker.generations};
    return tracker.watches[tracker.count++] = made;
}

Watch *tilesmith_watch(const Survey *survey, uintptr_t first, uintptr_t end, uint64_t *since) {
    Watch *watch = first < end && is_private(survey, first, end) ? range_of(first, end) : NULL;
    if (watch == NULL)
        return NULL;
    watch->users++;
    note_lost(first, end);
    if (!enroll(first, end) || !protect(first, end)) {
        tilesmith_unwatch(watch);
        return NULL;
    }
    *since = watch->generation;
    return watch;
}

void tilesmith_unwatch(Watch *watch) {
    if (--watch->users > 0)
        return;
    int is_shared = 0;
    Py_ssize_t own = 0;
    for (Py_ssize_t i = 0; i < tracker.count; i++) {
        Watch *other = tracker.watches[i];
        if (other == watch)
            own = i;
        else
            is_shared |= other->first < watch->end && watch->first < other->end;
    }
    tracker.watches[own] = tracker.watches[--tracker.count];
    if (!is_shared && tracker.state == WORKS && *tracker.mark != 0)
        dismiss(watch->first, watch->end);
    free(watch);
}

int tilesmith_is_unwritten(const Watch *watch, uint64_t since) {
    return watch->generation == since && is_unwritten(watch->first, watch->end);
}

#else /* systems that don't say what was written */

uintptr_t tilesmith_page_bytes(void) { return 0; }

Survey *tilesmith_survey(void) { return NULL; }

void tilesmith_survey_free(Survey *survey) { (void)survey; }

Watch *tilesmith_watch(const Survey *survey, uintptr_t first, uintptr_t end, uint64_t *since) {
    (void)survey, (void)first, (void)end, (void)since;
    return NULL;
}

void tilesmith_unwatch(Watch *watch) { (void)watch; }

int tilesmith_pages_answer(void) { return 0; }

int tilesmith_is_unwritten(const Watch *watch, uint64_t since) {
    (void)watch, (void)since;
    return 0;
}

#endif
