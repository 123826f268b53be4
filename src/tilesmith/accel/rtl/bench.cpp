// A test bench for the accelerator's hardware: DRAM with latency and random stalls.
//
// Standard input holds programs, one after the other: numbers of 64 bits (cycles between fetches, latency, percent of
// cycles in which a channel stalls, bytes of instructions, of micro-operations, of memory), then these bytes.  Standard
// output gets for each the cycles until it was finished, or -1 if it never was, and the memory.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "Vaccelerator.h"

using Bytes = std::vector<uint8_t>;

struct Beat {
    uint64_t due;
    Bytes data;
    int tag;
};

template <typename Port> static void put(Port &port, const uint8_t *from, size_t bytes) {
    std::memcpy(&port, from, bytes);
}

template <typename Port> static Bytes get(const Port &port, size_t bytes) {
    Bytes result(bytes);
    std::memcpy(result.data(), &port, bytes);
    return result;
}

static bool take(void *to, size_t bytes) { return bytes == 0 || std::fread(to, bytes, 1, stdin) == 1; }

int main() {
    auto top = std::make_unique<Vaccelerator>();
    uint64_t head[6], random = 1;
    while (take(head, sizeof head)) {
        const uint64_t between = head[0], latency = head[1], stalls = head[2];
        Bytes words(head[3]), steps(head[4]), memory(head[5]);
        if (!take(words.data(), words.size()) || !take(steps.data(), steps.size()) || !take(memory.data(), memory.size()))
            return 1;
        auto is_stalled = [&] {
            random = random * 6364136223846793005u + 1442695040888963407u;
            return (random >> 33) % 100 < stalls;
        };
        auto tick = [&] {
            top->clk = 1;
            top->eval();
            top->clk = 0;
            top->eval();
        };
        std::deque<Beat> reads;
        std::deque<uint64_t> writes;
        top->instruction_valid = top->response_valid = top->written = 0;
        top->rst = 1;
        tick();
        top->rst = 0;
        int64_t cycles = -1;
        uint64_t next = between;
        size_t fetched = 0;
        for (uint64_t now = 0; now < 10000000; now++) {
            top->instruction_valid = fetched < words.size() && now >= next;
            if (top->instruction_valid)
                put(top->instruction, &words[fetched], 16);
            top->read_ready = !is_stalled();
            top->write_ready = !is_stalled();
            top->response_valid = !reads.empty() && reads.front().due <= now;
            if (top->response_valid) {
                put(top->response_data, reads.front().data.data(), DMA_BYTES);
                top->response_tag = reads.front().tag;
            }
            top->written = !writes.empty() && writes.front() <= now;
            top->eval();
            if (top->finished) {
                cycles = (int64_t)now;
                break;
            }
            if (top->instruction_valid && top->instruction_ready) {
                fetched += 16;
                next = now + between;
            }
            if (top->response_valid)
                reads.pop_front();
            if (top->written)
                writes.pop_front();
            if (top->read_valid && top->read_ready) {
                const Bytes &from = (top->read_tag & 7) == UOP_READER ? steps : memory;
                Bytes data(DMA_BYTES);
                for (size_t i = 0; i < DMA_BYTES; i++)
                    data[i] = top->read_address + i < from.size() ? from[top->read_address + i] : 0;
                reads.push_back({now + latency, data, top->read_tag});
            }
            if (top->write_valid && top->write_ready) {
                const Bytes data = get(top->write_data, DMA_BYTES);
                for (size_t i = 0; i < DMA_BYTES; i++)
                    if ((uint64_t)top->write_mask >> i & 1 && top->write_address + i < memory.size())
                        memory[top->write_address + i] = data[i];
                writes.push_back(now + latency);
            }
            tick();
        }
        std::fwrite(&cycles, sizeof cycles, 1, stdout);
        std::fwrite(memory.data(), 1, memory.size(), stdout);
        std::fflush(stdout);
    }
}
