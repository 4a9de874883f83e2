// An expected failure with a message, for example of a server that is not reachable. It is a value
// and not an exception because callers handle it.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <variant>

namespace gpunbd {

struct Failure {
    std::string text;
    std::string remedy =
        {};  // an action for the user; empty if none is known or `text` includes it
    // What a server has responded, if it has.
    enum class Response { none, refused, replaced };  // replaced: its successor can do it
    Response response = Response::none;
};

// The final error message of a command.
inline std::string with_remedy(const Failure& failed) {
    return failed.remedy.empty() ? failed.text : failed.text + "; " + failed.remedy;
}

template <typename T>
using Or = std::variant<T, Failure>;

inline Failure failure(std::string_view what, int error) {
    return {std::string(what) + ": " + std::strerror(error)};
}

}  // namespace gpunbd
