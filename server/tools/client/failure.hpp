// An expected failure, as text for people: a server that is away is no exceptional case.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <variant>

namespace gpunbd {

struct Failure {
    std::string text;
    std::string remedy = {};  // what the user can do; empty: unknown, or part of the text
};

// For the message with which a command ends.
inline std::string with_remedy(const Failure& failed) {
    return failed.remedy.empty() ? failed.text : failed.text + "; " + failed.remedy;
}

template <typename T>
using Or = std::variant<T, Failure>;

inline Failure failure(std::string_view what, int error) {
    return {std::string(what) + ": " + std::strerror(error)};
}

}  // namespace gpunbd
