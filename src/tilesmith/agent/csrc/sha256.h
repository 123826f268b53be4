/* SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104). */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64];
};

static inline uint32_t sha_turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha_block(uint32_t *state, const uint8_t *data) {
    static const uint32_t K[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    };
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 | (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        a = sha_turn(a, 7) ^ sha_turn(a, 18) ^ a >> 3;
        b = sha_turn(b, 17) ^ sha_turn(b, 19) ^ b >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = sha_turn(v[4], 6) ^ sha_turn(v[4], 11) ^ sha_turn(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + K[i] + w[i];
        uint32_t s0 = sha_turn(v[0], 2) ^ sha_turn(v[0], 13) ^ sha_turn(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

static void sha_begin(struct sha256 *s) {
    static const uint32_t first[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    memcpy(s->state, first, sizeof first);
    s->length = 0;
}

static void sha_add(struct sha256 *s, const void *data, size_t size) {
    const uint8_t *from = data;
    while (size) {
        size_t used = s->length % 64, part = 64 - used < size ? 64 - used : size;
        memcpy(s->block + used, from, part);
        s->length += part;
        from += part;
        size -= part;
        if (s->length % 64 == 0)
            sha_block(s->state, s->block);
    }
}

static void sha_end(struct sha256 *s, uint8_t digest[32]) {
    uint64_t bits = s->length * 8;
    uint8_t tail[72] = {0x80};
    size_t pad = (s->length % 64 < 56 ? 56 : 120) - s->length % 64;
    for (int i = 0; i < 8; i++)
        tail[pad + i] = (uint8_t)(bits >> (56 - 8 * i));
    sha_add(s, tail, pad + 8);
    for (int i = 0; i < 32; i++)
        digest[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* HMAC with a key of 32 bytes. */
static void hmac(const uint8_t key[32], const void *text, size_t size, uint8_t digest[32]) {
    uint8_t pad[64];
    struct sha256 s;
    for (int pass = 0; pass < 2; pass++) {
        memset(pad, pass ? 0x5c : 0x36, sizeof pad);
        for (int i = 0; i < 32; i++)
            pad[i] ^= key[i];
        sha_begin(&s);
        sha_add(&s, pad, sizeof pad);
        sha_add(&s, pass ? digest : text, pass ? 32 : size);
        sha_end(&s, digest);
    }
}
