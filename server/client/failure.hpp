// What went wrong, as a sentence for people. While a server is away that is nothing unusual, and so
// no exception.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <variant>

namespace gpunbd {

struct Failure {
    std::string text;
};

template <typename T>
using Or = std::variant<T, Failure>;

inline Failure failure(std::string_view what, int error) {
    return {std::string(what) + ": " + std::strerror(error)};
}

}  // namespace gpunbd
