// What the C++17 headers of all models share.
#ifndef TILESMITH_HPP
#define TILESMITH_HPP

#include "tilesmith_model.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace tilesmith {

// Elements that somebody else owns, like std::span of C++20.
template <typename T> class view {
public:
    view(T *data, std::size_t size) : first(data), count(size) {}
    T *data() const { return first; }
    std::size_t size() const { return count; }
    T *begin() const { return first; }
    T *end() const { return first + count; }
    T &operator[](std::size_t i) const { return first[i]; }

private:
    T *first;
    std::size_t count;
};

// Whether a tensor has elements of type T.  Those that C++17 has no type for, such as f16, are integers of their bits.
template <typename T> bool has_type(const tilesmith_tensor &tensor) {
    static_assert(std::is_arithmetic_v<T>, "elements are numbers");
    const std::string type = tensor.type, bits = std::to_string(8 * sizeof(T));
    if (tensor.element_bytes != static_cast<std::int64_t>(sizeof(T)))
        return false;
    if (type == "f" + bits && sizeof(T) >= 4)
        return std::is_floating_point_v<T>;
    if (type == "i" + bits)
        return std::is_integral_v<T> && std::is_signed_v<T>;
    if (type == "bool" && std::is_same_v<T, bool>)
        return true;
    return std::is_integral_v<T> && std::is_unsigned_v<T> && !std::is_same_v<T, bool>;
}

} // namespace tilesmith

#endif
