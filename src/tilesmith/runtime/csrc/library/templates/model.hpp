// NAME for C++17: owners of the model and of its instances, which throw.
//
//     NAME::model model("NAME.weights");
//     NAME::instance instance(model);
//     instance.set_input(0, pixels);              // a std::vector<float>, which must outlive the runs
//     instance.run();
//     for (float y : instance.output<float>(0)) ...
#ifndef UPPER_HPP
#define UPPER_HPP

#include "NAME.h"
#include "tilesmith.hpp"

#include <array>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace NAME {

class error : public std::runtime_error {
public:
    error(const tilesmith_model *model, std::int32_t code, const void *arena = nullptr)
        : std::runtime_error(text(model, code, arena)), code(code) {}
    error(const std::string &text, std::int32_t code) : std::runtime_error(text), code(code) {}
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

    const tilesmith_model *get() const { return held.get(); }

private:
    struct unmake {
        void operator()(tilesmith_model *model) const { NAME_destroy(model); }
    };
    std::unique_ptr<tilesmith_model, unmake> held;
};

// A model with memory for one run at a time.  One instance belongs to one thread at a time.  The model must outlive it.
// All functions throw `error`; T is the type of a tensor's elements.
class instance {
public:
    explicit instance(const model &of, const std::vector<std::int64_t> &extents = {}) {
        tilesmith_instance *made = nullptr;
        if (extents.size() != UPPER_EXTENT_COUNT)
            throw error("NAME has " + std::to_string(UPPER_EXTENT_COUNT) + " open sizes, found " +
                            std::to_string(extents.size()),
                        TILESMITH_ARGUMENT);
        if (auto code = NAME_instance_create(of.get(), extents.data(), &made))
            throw error(of.get(), code);
        held.reset(made);
    }

    // Later runs read these elements, which are not copied: a std::vector, a std::array or another view.
    template <typename Elements> void set_input(std::int64_t index, const Elements &elements) {
        check<std::remove_cv_t<std::remove_pointer_t<decltype(elements.data())>>>("input", inputs(), UPPER_INPUT_COUNT,
                                                                                 index);
        check(NAME_set_input(held.get(), index, elements.data(), bytes_of(elements)));
    }

    // Later runs write to these elements instead of memory of the instance.
    template <typename Elements> void set_output(std::int64_t index, Elements &elements) {
        check<std::remove_pointer_t<decltype(elements.data())>>("output", outputs(), UPPER_OUTPUT_COUNT, index);
        check(NAME_set_output(held.get(), index, elements.data(), bytes_of(elements)));
    }

    // An output of the last run; the next one overwrites it.
    template <typename T> tilesmith::view<const T> output(std::int64_t index) const {
        void *data = nullptr;
        std::int64_t bytes = 0;
        check<T>("output", outputs(), UPPER_OUTPUT_COUNT, index);
        check(NAME_get_output(held.get(), index, &data, &bytes));
        return {static_cast<const T *>(data), static_cast<std::size_t>(bytes) / sizeof(T)};
    }

    // Give what the model keeps from run to run its first values again.
    void reset() { check(NAME_reset(held.get())); }

    void run() { check(NAME_instance_run(held.get())); }

    // Run the model on a thread of the instance and return at once.  That thread calls `done` with the run's code after
    // it; `done` may bind other inputs and submit the next run, and must not throw or destroy the instance.
    void submit(std::function<void(std::int32_t code)> done = {}) {
        auto kept = std::make_unique<std::function<void(std::int32_t)>>(std::move(done));
        check(NAME_submit(held.get(), call, kept.get()));
        kept.release(); // `call` has it
    }

    // Until no run is under way.
    void wait() { check(NAME_wait(held.get())); }

private:
    static void call(tilesmith_instance *, std::int32_t code, void *user) noexcept {
        std::unique_ptr<std::function<void(std::int32_t)>> done(static_cast<std::function<void(std::int32_t)> *>(user));
        if (*done)
            (*done)(code);
    }

    static const tilesmith_tensor *inputs() { return NAME_description()->inputs; }
    static const tilesmith_tensor *outputs() { return NAME_description()->outputs; }

    template <typename Elements> static std::int64_t bytes_of(const Elements &elements) {
        return static_cast<std::int64_t>(elements.size() * sizeof(*elements.data()));
    }

    template <typename T>
    static void check(const char *what, const tilesmith_tensor *tensors, std::int64_t count, std::int64_t index) {
        if (index < 0 || index >= count)
            throw error(std::string("expected the number of an ") + what + " below " + std::to_string(count) +
                            ", found " + std::to_string(index),
                        TILESMITH_ARGUMENT);
        if (!tilesmith::has_type<T>(tensors[index]))
            throw error(std::string(what) + " " + tensors[index].name + ": expected elements of type " +
                            tensors[index].type + ", found another type",
                        TILESMITH_ARGUMENT);
    }

    void check(std::int32_t code) const {
        if (!code)
            return;
        std::string text(static_cast<std::size_t>(NAME_instance_error(held.get(), code, nullptr, 0)) + 1, ' ');
        NAME_instance_error(held.get(), code, text.data(), static_cast<std::int64_t>(text.size()));
        text.pop_back();
        throw error(text, code);
    }

    struct unmake {
        void operator()(tilesmith_instance *instance) const { NAME_instance_destroy(instance); }
    };
    std::unique_ptr<tilesmith_instance, unmake> held;
};

} // namespace NAME

#endif
