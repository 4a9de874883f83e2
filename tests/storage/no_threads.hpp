// Makes the system refuse threads.
#pragma once

#include <pthread.h>

#include "tests/test.hpp"

namespace gpunbd::storage::test {

// While it exists, no thread can be started, since the address space is limited and has no room for
// a stack.
class NoThreads {
 public:
    NoThreads() {
        REQUIRE(::pthread_getattr_default_np(&before_) == 0);
        pthread_attr_t attributes;
        REQUIRE(::pthread_attr_init(&attributes) == 0);
        REQUIRE(::pthread_attr_setstacksize(&attributes, std::size_t{1} << 62) == 0);
        REQUIRE(::pthread_setattr_default_np(&attributes) == 0);
        ::pthread_attr_destroy(&attributes);
    }
    ~NoThreads() {
        CHECK(::pthread_setattr_default_np(&before_) == 0);
        ::pthread_attr_destroy(&before_);
    }
    NoThreads(const NoThreads&) = delete;
    NoThreads& operator=(const NoThreads&) = delete;

 private:
    pthread_attr_t before_;
};

}  // namespace gpunbd::storage::test
