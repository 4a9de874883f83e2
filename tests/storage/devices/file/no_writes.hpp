// Makes writes to all files of the process fail.
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "tests/test.hpp"

namespace gpunbd::storage::test {

class NoWrites {
 public:
    NoWrites() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
        const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
    }
    ~NoWrites() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }
    NoWrites(const NoWrites&) = delete;
    NoWrites& operator=(const NoWrites&) = delete;

 private:
    void (*handler_)(int);
    rlimit before_{};
};

}  // namespace gpunbd::storage::test
