// Tests that repeat the same steps many times leave some repetitions out in builds with a
// sanitizer, which take several times as long. The release build runs all of them.
#pragma once

namespace gpunbd::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif

}  // namespace gpunbd::test
