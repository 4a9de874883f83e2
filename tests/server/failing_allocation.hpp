// Makes selected allocations of participating threads fail. Replaces all forms of operator new and
// aligned_alloc (used by Asio) in the program.
#pragma once

#include <cstdint>

namespace gpunbd::server::test::failing_allocation {

// Includes the allocations of OpenSSL. To be called before OpenSSL allocates.
void fail_openssl_too();
// The calling thread participates from now on.
void take_part();
// Makes `count` allocations fail, beginning with allocation `number`, counted from 1.
void arm(std::int64_t number, std::int64_t count = 1);
// Returns true if the first of these has failed.
bool disarm();
// Counts allocations without failing any. made() returns the count.
void count();
std::int64_t made();

}  // namespace gpunbd::server::test::failing_allocation
