// Allocations that fail when a test wants them to, in the threads that take part. The program's
// operator new, in all its forms, and aligned_alloc (Asio's) are replaced for it.
#pragma once

#include <cstdint>

namespace gpunbd::server::test::failing_allocation {

// The calling thread takes part from now on.
void take_part();
// Allocation number `number` of theirs, from 1, fails.
void arm(std::int64_t number);
// Has it?
bool disarm();

}  // namespace gpunbd::server::test::failing_allocation
