#include "storage/assertions/assert.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace gpunbd {

void fail_assertion(const char* sentence, const char* condition, const char* file,
                    int line) noexcept {
    char text[1024];
    const int length =
        std::snprintf(text, sizeof text, "gpunbd: %s:%d: assertion failed: %s (%s)\n", file, line,
                      sentence, condition);
    const auto size = static_cast<std::size_t>(std::clamp<int>(length, 0, sizeof text - 1));
    static_cast<void>(::write(STDERR_FILENO, text, size));
    std::abort();
}

}  // namespace gpunbd
