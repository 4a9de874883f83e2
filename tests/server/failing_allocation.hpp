// Allocations that fail when a test wants them to, in the threads that take part. The program's
// operator new, in all its forms, and aligned_alloc (Asio's) are replaced for it.
#pragma once

#include <cstdint>

namespace gpunbd::server::test::failing_allocation {

// Before OpenSSL has allocated anything: what it allocates counts as well.
void fail_openssl_too();
// The calling thread takes part from now on.
void take_part();
// `count` allocations of theirs fail, from number `number` on, which is at least 1.
void arm(std::int64_t number, std::int64_t count = 1);
// Has the first of them?
bool disarm();
// None fails. How many there have been since is told by made().
void count();
std::int64_t made();

}  // namespace gpunbd::server::test::failing_allocation
