/* The agent of a device without Python: it runs static programs that callers sent, confined.
 *
 *     agent FOLDER [PORT]
 *
 * FOLDER has agent.json of `tilesmith agent init --plain`.  The agent listens at 127.0.0.1 only, without TLS: reach it
 * through ssh -L.  docs/devices.md has the protocol; of its requests this agent answers ABOUT, HAS, PUT, COUNTERS, LOGS
 * and EXEC.  A process serves each connection.  One program runs at a time, in a process without files, network and
 * other programs.
 *
 * EMULATOR is the path of a user-mode emulator, for tests of other processors: it knows neither seccomp nor execveat, so
 * the agent starts programs by it, unconfined. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "confine.h"
#include "sha256.h"

enum { HEAD = 20, FIELDS = 65536, NONCE = 32, CALLERS = 32, LOG = 8192, PIECE = 65536 };
enum kind { HELLO = 1, PROVE, ABOUT, HAS, PUT, COUNTERS = 11, LOGS, EXEC, DONE = 128, REFUSED };

#define OBJECT_BYTES (1ull << 30)
#ifndef STORE_BYTES
#define STORE_BYTES (4ull << 30)
#endif
#define ANSWER_BYTES (1ull << 30)
#define MEMORY_BYTES (4ull << 30)
#define RUN_SECONDS 120
#ifndef HANDSHAKE_SECONDS
#define HANDSHAKE_SECONDS 10
#endif
#define IDLE_SECONDS 3600 /* without a request */
#define SLOWEST 100000 /* bytes per second of a connection */

struct shared { /* by all processes of the agent */
    unsigned long connections, requests, refused, malformed, denied, runs, ended_crash, ended_timeout;
    unsigned long bytes_received, written;
    char log[LOG];
};

struct frame {
    int kind;
    uint64_t size; /* of the body, which is not read yet */
    char fields[FIELDS + 1];
};

static uint8_t token[32];
static struct shared *shared;
static int folder, turn; /* the folder of objects, and the lock of the program that runs */
static struct frame asked;

static void note(const char *what, const char *text) {
    char line[256];
    int size = snprintf(line, sizeof line, "%ld %s %.150s\n", (long)time(NULL), what, text);
    unsigned long at = __atomic_fetch_add(&shared->written, (unsigned long)size, __ATOMIC_RELAXED);
    for (int i = 0; i < size; i++)
        shared->log[(at + (unsigned long)i) % LOG] = line[i];
}

static void count(unsigned long *counter, unsigned long by) { __atomic_fetch_add(counter, by, __ATOMIC_RELAXED); }

/* --- frames */

static int receive(int peer, void *to, size_t size) {
    for (char *at = to; size;) {
        ssize_t got = read(peer, at, size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        at += got;
        size -= (size_t)got;
    }
    return 1;
}

static int is_admitted; /* whether the handshake is over */

/* This process ends if the rest of a frame takes longer.  A handshake has its own limit for both of its frames. */
static void limit_time(uint64_t bytes) {
    if (is_admitted)
        alarm(60 + (unsigned)(bytes / SLOWEST));
}

static void send_all(int peer, const void *from, size_t size) {
    for (const char *at = from; size;) {
        ssize_t put = write(peer, at, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            _exit(0);
        at += put;
        size -= (size_t)put;
    }
}

static void answer(int peer, enum kind kind, const char *fields, const void *body, uint64_t size) {
    uint8_t head[HEAD] = {'T', 'S', 'A', '1', (uint8_t)kind};
    size_t count_ = strlen(fields);
    limit_time(size);
    for (int i = 0; i < 4; i++)
        head[8 + i] = (uint8_t)(count_ >> 8 * i);
    for (int i = 0; i < 8; i++)
        head[12 + i] = (uint8_t)(size >> 8 * i);
    send_all(peer, head, HEAD);
    send_all(peer, fields, count_);
    send_all(peer, body, size);
}

/* `word` may be followed by lines of other fields. */
static void refuse(int peer, const char *word, const char *text) {
    char fields[320];
    snprintf(fields, sizeof fields, "error=%s\ntext=%.200s\n", word, text);
    count(&shared->refused, 1);
    note("refused", text);
    answer(peer, REFUSED, fields, "", 0);
}

/* What a caller sent can't be understood, so the connection ends. */
static _Noreturn void malformed(int peer, const char *text) {
    count(&shared->malformed, 1);
    refuse(peer, "device", text);
    _exit(0);
}

/* Whether fields are lines NAME=VALUE without control characters, each name once. */
static int are_fields(char *text, size_t size) {
    char *names[64], *at = text;
    for (int n = 0; at < text + size; n++) {
        char *end = memchr(at, '\n', (size_t)(text + size - at)), *p = at;
        if (!end || n == 64)
            return 0;
        while (p < end && ((*p >= 'a' && *p <= 'z') || (p > at && (*p == '_' || (*p >= '0' && *p <= '9')))))
            p++;
        if (p == at || p - at > 32 || *p != '=')
            return 0;
        for (int i = 0; i < n; i++)
            if (!strncmp(names[i], at, (size_t)(p - at) + 1))
                return 0;
        names[n] = at;
        for (p++; p < end; p++)
            if ((uint8_t)*p < 0x20 || *p == 0x7f)
                return 0;
        at = end + 1;
    }
    return 1;
}

/* Reads a head and fields into `asked`.  Returns 0 at the end of the connection. */
static int next(int peer, uint64_t most) {
    uint8_t head[HEAD];
    uint32_t fields = 0;
    if (!receive(peer, head, 1))
        return 0;
    limit_time(0);
    if (!receive(peer, head + 1, HEAD - 1))
        malformed(peer, "expected a head of 20 bytes");
    if (memcmp(head, "TSA1", 4) || head[5] || head[6] || head[7])
        malformed(peer, "expected a frame that begins with TSA1");
    asked.kind = head[4];
    asked.size = 0;
    for (int i = 0; i < 4; i++)
        fields |= (uint32_t)head[8 + i] << 8 * i;
    for (int i = 0; i < 8; i++)
        asked.size |= (uint64_t)head[12 + i] << 8 * i;
    if (fields > FIELDS || asked.size > most)
        malformed(peer, "the frame is too large");
    if (!receive(peer, asked.fields, fields))
        malformed(peer, "the fields end early");
    asked.fields[fields] = 0;
    if (!are_fields(asked.fields, fields))
        malformed(peer, "expected fields NAME=VALUE, each once");
    limit_time(asked.size);
    return 1;
}

/* The value of a field, copied; empty if there is none or if it is longer. */
static const char *field(const char *name, char *to, size_t size) {
    size_t length = strlen(name);
    for (const char *at = asked.fields; *at; at = strchr(at, '\n') + 1)
        if (!strncmp(at, name, length) && at[length] == '=') {
            size_t n = (size_t)(strchr(at, '\n') - at) - length - 1;
            if (n < size) {
                memcpy(to, at + length + 1, n);
                to[n] = 0;
                return to;
            }
        }
    *to = 0;
    return to;
}

static int is_hex(const char *text, size_t size) { return strlen(text) == size && strspn(text, "0123456789abcdef") == size; }

/* The SHA-256 digest in a field: the name of a file, and nothing else. */
static void digest_in(int peer, const char *name, char to[65]) {
    if (!is_hex(field(name, to, 65), 64))
        malformed(peer, "expected a digest of 64 hexadecimal digits");
}

static void to_hex(const uint8_t *bytes, char to[65]) {
    for (int i = 0; i < 32; i++)
        sprintf(to + 2 * i, "%02x", bytes[i]);
}

static void from_hex(const char *text, uint8_t *to) {
    for (int i = 0; i < 32; i++) {
        char two[3] = {text[2 * i], text[2 * i + 1], 0};
        to[i] = (uint8_t)strtoul(two, NULL, 16);
    }
}

/* --- the handshake */

static void proof(const char *side, const uint8_t *theirs, const uint8_t *ours, char to[65]) {
    char text[96];
    uint8_t made[32];
    int size = snprintf(text, sizeof text, "tilesmith %s", side) + 1;
    memcpy(text + size, theirs, NONCE);
    memcpy(text + size + NONCE, ours, NONCE);
    hmac(token, text, (size_t)size + 2 * NONCE, made);
    to_hex(made, to);
}

static void greet(int peer) {
    char text[65], expected[65], fields[200];
    uint8_t theirs[NONCE], ours[NONCE];
    alarm(HANDSHAKE_SECONDS);
    if (!next(peer, 0))
        _exit(0);
    if (asked.kind != HELLO)
        malformed(peer, "expected HELLO");
    digest_in(peer, "nonce", text);
    from_hex(text, theirs);
    if (getrandom(ours, NONCE, 0) != NONCE)
        _exit(1);
    proof("agent", theirs, ours, expected);
    to_hex(ours, text);
    snprintf(fields, sizeof fields, "nonce=%s\nproof=%s\n", text, expected);
    answer(peer, DONE, fields, "", 0);
    if (!next(peer, 0))
        _exit(0);
    if (asked.kind != PROVE)
        malformed(peer, "expected PROVE");
    digest_in(peer, "proof", text);
    proof("caller", ours, theirs, expected);
    unsigned differs = 0;
    for (int i = 0; i < 64; i++) /* in the same time for every text */
        differs |= (unsigned)(text[i] ^ expected[i]);
    if (differs) {
        count(&shared->denied, 1);
        usleep(PENALTY);
        malformed(peer, "the caller does not have the token of this agent");
    }
    is_admitted = 1;
    answer(peer, DONE, "", "", 0);
}

/* --- objects */

/* Whether a file is what is left of an upload whose process is gone. */
static int is_left_over(const char *name) {
    const char *end = strrchr(name, '.');
    int is_part = end && !strcmp(end, ".part");
    int file = is_part ? openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    int is_free = file >= 0 && !flock(file, LOCK_EX | LOCK_NB);
    if (file >= 0)
        close(file);
    return is_free;
}

/* Gives an empty file `size` bytes of the disk.  Removes what is left of other uploads, and the objects that were not
 * used for the longest time, until they fit. */
static int reserve(int file, uint64_t size) {
    if (ftruncate(file, (off_t)size))
        return 0;
    for (;;) {
        uint64_t total = 0;
        char oldest[65] = "";
        time_t least = 0;
        struct dirent *entry;
        DIR *listed = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!listed)
            return 0;
        while ((entry = readdir(listed))) {
            struct stat info;
            if (fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode))
                continue;
            if (is_left_over(entry->d_name)) {
                unlinkat(folder, entry->d_name, 0);
                continue;
            }
            total += (uint64_t)info.st_size;
            if (is_hex(entry->d_name, 64) && (!*oldest || info.st_mtime < least)) {
                least = info.st_mtime;
                memcpy(oldest, entry->d_name, 65);
            }
        }
        closedir(listed);
        int failure = total <= STORE_BYTES && size ? posix_fallocate(file, 0, (off_t)size) : 0;
        if (total <= STORE_BYTES && failure != ENOSPC && failure != EDQUOT && failure != EFBIG)
            return 1; /* some file systems can't reserve */
        if (!*oldest || unlinkat(folder, oldest, 0))
            return 0;
    }
}

static void put(int peer) {
    static uint8_t piece[PIECE];
    char digest[65], found[65], name[40];
    uint8_t made[32];
    struct sha256 sum;
    digest_in(peer, "digest", digest);
    snprintf(name, sizeof name, ".%d.part", (int)getpid());
    int lock = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    flock(lock, LOCK_EX); /* one process at a time makes room */
    int file = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0700);
    int fits = file >= 0 && !flock(file, LOCK_EX) && reserve(file, asked.size);
    close(lock);
    sha_begin(&sum);
    for (uint64_t left = asked.size; left;) {
        size_t part = left < PIECE ? (size_t)left : PIECE;
        if (!receive(peer, piece, part)) {
            unlinkat(folder, name, 0);
            _exit(0);
        }
        sha_add(&sum, piece, part);
        for (size_t at = 0; fits && at < part;) {
            ssize_t wrote = write(file, piece + at, part - at);
            if (wrote <= 0)
                fits = 0;
            else
                at += (size_t)wrote;
        }
        left -= part;
    }
    if (file >= 0 && close(file))
        fits = 0;
    sha_end(&sum, made);
    to_hex(made, found);
    if (fits && strcmp(found, digest))
        refuse(peer, "device", "the contents have another digest");
    else if (!fits || renameat(folder, name, folder, digest))
        refuse(peer, "unavailable", "there is no room for the object");
    else
        answer(peer, DONE, "", "", 0);
    unlinkat(folder, name, 0);
}

static int opened(const char *digest) {
    int file = openat(folder, digest, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file >= 0)
        futimens(file, NULL);
    return file;
}

/* --- programs */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#ifdef EMULATOR
#define LAYERS ""
static int start(int program, char **argv, char **envp) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    argv[0] = EMULATOR;
    argv[1] = path;
    return fcntl(program, F_SETFD, 0) || execve(EMULATOR, argv, envp);
}
#else
#define LAYERS ", \"seccomp\""
static int start(int program, char **argv, char **envp) {
    argv[1] = "program";
    return confine(program) || (int)syscall(SYS_execveat, program, "", argv + 1, envp, AT_EMPTY_PATH);
}
#endif

/* Becomes the program, confined. */
static _Noreturn void become(int program, int in, int out, char *words, unsigned seconds) {
    char *argv[19] = {NULL}, *envp[] = {NULL};
    int n = 2; /* after the emulator and the program */
    for (char *w = strtok(words, " "); w && n < 18; w = strtok(NULL, " "))
        argv[n++] = w;
    setpgid(0, 0);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0)
        _exit(126);
    int run = fcntl(program, F_DUPFD_CLOEXEC, 64);
    for (int fd = 2; fd < 1024; fd++)
        if (fd != run)
            close(fd);
    open("/dev/null", O_WRONLY); /* descriptor 2 */
    struct rlimit limits[] = {{0, 0}, {MEMORY_BYTES, MEMORY_BYTES}, {80, 80}, {seconds * 64 + 1, seconds * 64 + 1}, {0, 0}};
    int kinds[] = {RLIMIT_CORE, RLIMIT_AS, RLIMIT_NOFILE, RLIMIT_CPU, RLIMIT_FSIZE};
    for (int i = 0; i < 5; i++)
        setrlimit(kinds[i], &limits[i]);
    start(run, argv, envp);
    _exit(126);
}

static void exec_(int peer) {
    char digest[65], words[128], number[16], fields[400];
    uint64_t size = asked.size, got = 0, room = 1 << 16, sent = 0;
    char *body = malloc(size + 1), *out = malloc(room);
    digest_in(peer, "program", digest);
    int program = opened(digest);
    unsigned seconds = (unsigned)strtoul(field("seconds", number, sizeof number), NULL, 10);
    field("words", words, sizeof words);
    if (!seconds || seconds > RUN_SECONDS || strspn(words, "abcdefghijklmnopqrstuvwxyz0123456789. ") != strlen(words))
        malformed(peer, "expected seconds within the limit, and words of letters and digits");
    if (!body || !out || !receive(peer, body, size))
        _exit(1);
    alarm(0);
    if (program < 0) {
        refuse(peer, "absent", "an object is not here; send it first");
        goto end;
    }
    int in[2], from[2], status = 0, is_late = 0;
    while (flock(turn, LOCK_EX) && errno == EINTR)
        ;
    if (pipe2(in, O_CLOEXEC | O_NONBLOCK) || pipe2(from, O_CLOEXEC))
        _exit(1);
    fcntl(in[0], F_SETFL, 0);
    count(&shared->runs, 1);
    double until = now() + seconds;
    pid_t child = fork();
    if (child < 0)
        _exit(1);
    if (!child)
        become(program, in[0], from[1], words, seconds);
    close(in[0]);
    close(from[1]);
    int writes = in[1];
    for (;;) {
        struct pollfd ends[2] = {{from[0], POLLIN, 0}, {writes, POLLOUT, 0}};
        double left = until - now();
        if (left <= 0 || got > ANSWER_BYTES) {
            is_late = 1;
            break;
        }
        if (writes >= 0 && sent == size) {
            close(writes);
            writes = -1;
            continue;
        }
        if (poll(ends, writes >= 0 ? 2 : 1, (int)(left * 1e3) + 1) < 0 && errno != EINTR)
            break;
        if (writes >= 0 && ends[1].revents) {
            ssize_t put_ = write(writes, body + sent, size - sent);
            if (put_ < 0 && errno != EAGAIN && errno != EINTR)
                sent = size; /* the program does not read it */
            else if (put_ > 0)
                sent += (uint64_t)put_;
        }
        if (ends[0].revents) {
            if (got == room) {
                char *more = realloc(out, room *= 2);
                if (!more)
                    _exit(1);
                out = more;
            }
            ssize_t part = read(from[0], out + got, room - got);
            if (part <= 0)
                break;
            got += (uint64_t)part;
        }
    }
    if (writes >= 0)
        close(writes);
    close(from[0]);
    struct rusage used;
    if (!is_late) { /* it has closed its output: let it end */
        while (wait4(child, &status, WNOHANG, &used) == 0 && now() < until)
            usleep(200);
        is_late = now() >= until;
    }
    kill(-child, SIGKILL);
    if (is_late)
        wait4(child, &status, 0, &used);
    flock(turn, LOCK_UN);
    int ended = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    if (is_late) {
        count(&shared->ended_timeout, 1);
        snprintf(fields, sizeof fields, "the run gave no result within %u s", seconds);
        refuse(peer, "device\ncause=timeout", fields);
    } else if (ended) {
        count(&shared->ended_crash, ended < 0);
        snprintf(fields, sizeof fields, "the program ended with %s %d", ended < 0 ? "signal" : "code", abs(ended));
        refuse(peer, ended < 0 ? "device\ncause=crash" : "device\ncause=failed", fields);
    } else {
        snprintf(fields, sizeof fields, "cpu_seconds=%.6f\npage_faults=%ld\nswitches=%ld\npeak_bytes=%ld\n",
                 (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
                 used.ru_majflt + used.ru_minflt, used.ru_nivcsw, used.ru_maxrss * 1024);
        answer(peer, DONE, fields, out, got);
    }
end:
    if (program >= 0)
        close(program);
    free(body);
    free(out);
}

/* --- facts */

#if defined __x86_64__
#define FEATURES "flags"
#elif defined __riscv
#define FEATURES "isa"
#else
#define FEATURES "Features"
#endif

/* The first line of /proc/cpuinfo that begins with `name`: what follows the colon, without odd characters. */
static void cpu_fact(const char *name, char *to, size_t size) {
    static char text[PIECE];
    int file = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[got > 0 ? got : 0] = 0;
    char *from = text;
    size_t n = 0;
    while (*from && strncmp(from, name, strlen(name))) {
        from += strcspn(from, "\n");
        from += *from == '\n';
    }
    from += strcspn(from, ":\n");
    for (from += *from == ':'; *from && *from != '\n' && n + 1 < size; from++)
        if (*from >= ' ' && *from != '"' && *from != '\\' && *from < 127 && (n || *from != ' '))
            to[n++] = *from;
    to[n] = 0;
}

static void about(int peer) {
    static char text[8192], flags[4096], model[256];
    struct utsname system;
    char host[65] = "";
    cpu_fact(FEATURES, flags, sizeof flags);
    cpu_fact("model name", model, sizeof model);
    uname(&system);
    for (size_t i = 0; i < 64 && system.nodename[i]; i++)
        host[i] = strchr("\"\\", system.nodename[i]) || system.nodename[i] < ' ' ? '_' : system.nodename[i];
    int size = snprintf(text, sizeof text,
        "{\"agent\": \"c\", \"name\": \"%s\", \"version\": \"%s\", \"machine\": \"%s\", \"cores\": %ld, \"cpu\": \"%s\", "
        "\"flags\": \"%s\", \"confined\": [\"limits\"%s" LAYERS "]}",
        host, VERSION, system.machine, sysconf(_SC_NPROCESSORS_ONLN), model, flags, has_landlock() ? ", \"landlock\"" : "");
    answer(peer, DONE, "", text, (uint64_t)size);
}

static void counters(int peer) {
    char text[600];
    struct shared s = *shared;
    int size = snprintf(text, sizeof text,
        "{\"connections\": %lu, \"requests\": %lu, \"refused\": %lu, \"malformed\": %lu, \"denied\": %lu, \"runs\": %lu, "
        "\"ended_crash\": %lu, \"ended_timeout\": %lu, \"bytes_received\": %lu}",
        s.connections, s.requests, s.refused, s.malformed, s.denied, s.runs, s.ended_crash, s.ended_timeout, s.bytes_received);
    answer(peer, DONE, "", text, (uint64_t)size);
}

static void logs(int peer) {
    static char text[LOG];
    unsigned long end = shared->written, begin = end > LOG ? end - LOG : 0;
    for (unsigned long i = begin; i < end; i++)
        text[i - begin] = shared->log[i % LOG];
    answer(peer, DONE, "", text, end - begin);
}

static _Noreturn void serve(int peer) {
    int one = 1;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    count(&shared->connections, 1);
    greet(peer);
    for (;;) {
        char digest[65];
        alarm(IDLE_SECONDS);
        if (!next(peer, OBJECT_BYTES))
            _exit(0);
        count(&shared->requests, 1);
        count(&shared->bytes_received, asked.size);
        int is_bare = asked.kind == ABOUT || asked.kind == COUNTERS || asked.kind == LOGS;
        if ((is_bare && (*asked.fields || asked.size)) || (asked.kind == HAS && asked.size))
            malformed(peer, "expected no fields and no body");
        switch (asked.kind) {
        case ABOUT: about(peer); break;
        case HAS: {
            digest_in(peer, "digest", digest);
            int file = opened(digest);
            answer(peer, DONE, file >= 0 ? "has=1\n" : "has=0\n", "", 0);
            if (file >= 0)
                close(file);
            break;
        }
        case PUT: put(peer); break;
        case COUNTERS: counters(peer); break;
        case LOGS: logs(peer); break;
        case EXEC: exec_(peer); break;
        default: malformed(peer, "this agent does not answer such requests");
        }
    }
}

static int load_token(const char *path) {
    char text[8192], *at;
    int file = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (got < 0)
        return 0;
    close(file);
    text[got] = 0;
    at = strstr(text, "\"token\": \"");
    if (!at || strspn(at + 10, "0123456789abcdef") != 64)
        return 0;
    from_hex(at + 10, token);
    return 1;
}

static _Noreturn void fail(const char *text) {
    fprintf(stderr, "agent: %s\n", text);
    exit(1);
}

int main(int argc, char **argv) {
    char path[4096];
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(9100)};
    socklen_t size = sizeof place;
    int one = 1, open_ = 0;
    if (argc < 2 || argc > 3)
        fail("usage: agent FOLDER [PORT], with FOLDER of `tilesmith agent init --plain`");
    if (argc == 3)
        place.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
    snprintf(path, sizeof path, "%s/agent.json", argv[1]);
    if (!load_token(path))
        fail("FOLDER has no agent.json of `tilesmith agent init`");
    snprintf(path, sizeof path, "%s/objects", argv[1]);
    mkdir(path, 0700);
    folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/turn", argv[1]);
    if (folder < 0 || close(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)))
        fail("FOLDER can't be written");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (shared == MAP_FAILED || bind(listening, (struct sockaddr *)&place, sizeof place) || listen(listening, 64))
        fail("the port is taken");
    getsockname(listening, (struct sockaddr *)&place, &size);
    signal(SIGPIPE, SIG_IGN);
    printf("listening at tcp://127.0.0.1:%d\n", ntohs(place.sin_port));
    fflush(stdout);
    for (;;) {
        int peer = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            open_--;
        if (peer < 0)
            continue;
        pid_t child = open_ < CALLERS ? fork() : -1;
        if (!child) {
            close(listening);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            turn = open(path, O_RDWR | O_CLOEXEC); /* each process needs a lock of its own */
            serve(peer);
        }
        open_ += child > 0;
        close(peer);
    }
}
