// A test bench for the accelerator's hardware: a bus, and DRAM with latency and random stalls.
//
// Arguments are the bytes of DRAM, its latency, and the cycles between two instructions that it delivers.  Standard input
// holds commands, a letter and numbers of 64 bits; numbers and bytes that are read go to standard output:
//
//     r REGISTER           read a register
//     w REGISTER VALUE     write it
//     g ADDRESS COUNT      read bytes of DRAM
//     p ADDRESS COUNT      write the bytes that follow to DRAM
//     s PERCENT            percent of the cycles in which a channel stalls
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

template <typename Port> static void put(Port &port, const Bytes &from) { std::memcpy(&port, from.data(), from.size()); }

template <typename Port> static Bytes get(const Port &port, size_t bytes) {
    Bytes result(bytes);
    std::memcpy(result.data(), &port, bytes);
    return result;
}

// Cycles that pass at each access of a register, as on a real bus.
static const int ACCESS = 64;

class Board {
    Vaccelerator top;
    Bytes &memory;
    uint64_t latency, between, now = 0, last_fetch = 0, random = 1;
    std::deque<Beat> reads, fetches;
    std::deque<uint64_t> writes;

    bool is_stalled() {
        random = random * 6364136223846793005u + 1442695040888963407u;
        return (random >> 33) % 100 < stalls;
    }

    Bytes bytes(uint64_t address, size_t count) const {
        Bytes data(count);
        for (size_t i = 0; i < count && address + i < memory.size(); i++)
            data[i] = memory[address + i];
        return data;
    }

    void tick() {
        top.clk = 1;
        top.eval();
        top.clk = 0;
        top.eval();
        now++;
    }

    void cycle() {
        top.read_ready = !is_stalled();
        top.write_ready = !is_stalled();
        top.fetch_ready = 1;
        top.response_valid = !reads.empty() && reads.front().due <= now;
        if (top.response_valid) {
            put(top.response_data, reads.front().data);
            top.response_tag = reads.front().tag;
            reads.pop_front();
        }
        top.fetched_valid = !fetches.empty() && fetches.front().due <= now;
        if (top.fetched_valid) {
            put(top.fetched, fetches.front().data);
            fetches.pop_front();
        }
        top.written = !writes.empty() && writes.front() <= now;
        if (top.written)
            writes.pop_front();
        top.eval();
        if (top.read_valid && top.read_ready)
            reads.push_back({now + latency, bytes(top.read_address, DMA_BYTES), top.read_tag});
        if (top.fetch_valid) {
            const uint64_t soonest = now + latency, next = last_fetch + between;
            last_fetch = soonest > next ? soonest : next;
            fetches.push_back({last_fetch, bytes(top.fetch_address, 16), 0});
        }
        if (top.write_valid && top.write_ready) {
            const Bytes data = get(top.write_data, DMA_BYTES);
            for (size_t i = 0; i < DMA_BYTES; i++)
                if ((uint64_t)top.write_mask >> i & 1 && top.write_address + i < memory.size())
                    memory[top.write_address + i] = data[i];
            writes.push_back(now + latency);
        }
        tick();
    }

  public:
    uint64_t stalls = 0;

    Board(Bytes &memory, uint64_t latency, uint64_t between) : memory(memory), latency(latency), between(between) {
        top.rst = 1;
        tick();
        top.rst = 0;
    }

    void write(uint64_t address, uint64_t value) {
        top.bus_address = address;
        top.bus_data = value;
        top.bus_write = 1;
        cycle();
        top.bus_write = 0;
        wait();
    }

    uint64_t read(uint64_t address) {
        wait();
        top.bus_address = address;
        top.eval();
        return top.bus_result;
    }

    void wait() {
        for (int i = 0; i < ACCESS; i++)
            cycle();
    }
};

static bool take(void *to, size_t bytes) { return bytes == 0 || std::fread(to, bytes, 1, stdin) == 1; }

static void give(const void *from, size_t bytes) {
    std::fwrite(from, 1, bytes, stdout);
    std::fflush(stdout);
}

int main(int count, char **arguments) {
    if (count != 4)
        return 1;
    Bytes memory(std::strtoull(arguments[1], nullptr, 10));
    auto board = std::make_unique<Board>(
        memory, std::strtoull(arguments[2], nullptr, 10), std::strtoull(arguments[3], nullptr, 10));
    char command;
    uint64_t n[2];
    while (take(&command, 1)) {
        if (!take(n, command == 'r' || command == 's' ? 8 : 16))
            return 1;
        const bool is_copy = command == 'g' || command == 'p';
        if (is_copy && (n[0] > memory.size() || n[1] > memory.size() - n[0]))
            return 2;
        if (command == 'r') {
            const uint64_t value = board->read(n[0]);
            give(&value, sizeof value);
        } else if (command == 'w') {
            board->write(n[0], n[1]);
        } else if (command == 'g') {
            give(memory.data() + n[0], n[1]);
        } else if (command == 'p') {
            if (!take(memory.data() + n[0], n[1]))
                return 1;
        } else {
            board->stalls = n[0];
        }
    }
}
