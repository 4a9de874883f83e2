// An unprivileged user during its lifetime, because root may read all files.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

namespace gpunbd::test {

class UnprivilegedUser {
 public:
    UnprivilegedUser() {
        if (::getuid() == 0) REQUIRE(::seteuid(65534) == 0);
    }
    ~UnprivilegedUser() {
        if (::getuid() == 0) CHECK(::seteuid(0) == 0);
    }
    UnprivilegedUser(const UnprivilegedUser&) = delete;
    UnprivilegedUser& operator=(const UnprivilegedUser&) = delete;
};

}  // namespace gpunbd::test
