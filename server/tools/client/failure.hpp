// The error of an Expected<T, Failure>: a failure that callers handle, such as a server that is not
// reachable.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "server/base/expected.hpp"

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

// A text as the result: without a name, it could also be the text of a failure.
inline Expected<std::string, Failure> success(std::string text) {
    return {boost::system::in_place_value, std::move(text)};
}

inline Failure failure(std::string_view what, int error) {
    return {std::string(what) + ": " + std::strerror(error)};
}

}  // namespace gpunbd
