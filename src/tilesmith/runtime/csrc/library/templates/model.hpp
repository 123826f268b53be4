// NAME for C++17: an owner of the model that throws.
#ifndef UPPER_HPP
#define UPPER_HPP

#include "NAME.h"

#include <array>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace NAME {

class error : public std::runtime_error {
public:
    error(const tilesmith_model *model, std::int32_t code, const void *arena = nullptr)
        : std::runtime_error(text(model, code, arena)), code(code) {}
    const std::int32_t code;

private:
    static std::string text(const tilesmith_model *model, std::int32_t code, const void *arena) {
        std::string found(static_cast<std::size_t>(NAME_error(model, code, arena, nullptr, 0)) + 1, ' ');
        NAME_error(model, code, arena, found.data(), static_cast<std::int64_t>(found.size()));
        found.pop_back();
        return found;
    }
};

class model {
public:
    // weights: path of the file of weights; "" where they are in the library.
    explicit model(const std::string &weights = "", std::int64_t threads = 1) {
        tilesmith_options options{};
        options.abi = TILESMITH_ABI;
        options.size = sizeof options;
        options.weights = weights.empty() ? nullptr : weights.c_str();
        options.threads = threads;
        tilesmith_model *made = nullptr;
        if (auto code = NAME_create(&options, &made))
            throw error(nullptr, code);
        held.reset(made);
    }

    std::int64_t arena_bytes(const std::vector<std::int64_t> &extents = {}) const {
        return NAME_arena_bytes(held.get(), extents.data());
    }

    // arena: of arena_bytes, aligned to TILESMITH_ALIGNMENT.  Throws `error`.
    void run(const std::array<const void *, UPPER_INPUT_COUNT> &inputs,
             const std::array<void *, UPPER_OUTPUT_COUNT> &outputs, void *arena,
             const std::vector<std::int64_t> &extents = {}) const {
        if (auto code = NAME_run(held.get(), extents.data(), inputs.data(), outputs.data(), arena))
            throw error(held.get(), code, arena);
    }

private:
    struct unmake {
        void operator()(tilesmith_model *model) const { NAME_destroy(model); }
    };
    std::unique_ptr<tilesmith_model, unmake> held;
};

} // namespace NAME

#endif
