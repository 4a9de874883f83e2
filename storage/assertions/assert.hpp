// Assertions about the program's own state. No input, no client and no failure of a device may make
// one of them false: those have error paths.
#pragma once

namespace gpunbd {

// Prints the sentence, the condition and its place to standard error, and aborts. Allocates no
// memory.
[[noreturn]] void fail_assertion(const char* sentence, const char* condition, const char* file,
                                 int line) noexcept;

}  // namespace gpunbd

// `sentence` says what always holds. Builds for debugging, with a sanitizer or for fuzzing check
// it; release builds do not evaluate the condition.
#if defined(GPUNBD_ASSERTIONS)
#define GPUNBD_ASSERT(condition, sentence) \
    (static_cast<bool>(condition)          \
         ? static_cast<void>(0)            \
         : ::gpunbd::fail_assertion("" sentence, #condition, __FILE__, __LINE__))
#else
#define GPUNBD_ASSERT(condition, sentence) \
    static_cast<void>(false && static_cast<bool>(condition) && *("" sentence) != 0)
#endif
