// Whether a text contains another one, for assertions.
#pragma once

#include <string_view>

namespace gpunbd::test {

inline bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace gpunbd::test

namespace gpunbd {
using test::contains;
}
