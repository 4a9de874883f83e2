// Makes selected allocations of participating threads fail. Replaces all forms of operator new and
// aligned_alloc (used by Asio) in the program.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>

namespace gpunbd::server::test::failing_allocation {

// Includes the allocations of OpenSSL. To be called before OpenSSL allocates.
void fail_openssl_too();
// The calling thread participates from now on.
void take_part();
// Makes `count` allocations fail, beginning with allocation `number`, counted from 1.
void arm(std::int64_t number, std::int64_t count = 1);
// Returns true if the first of these has failed.
bool disarm();
// Calls `round`, which passes a call on to its argument: in each round a later allocation of that
// call fails, with all of the `count` from there on, until none fails. The argument returns whether
// one has failed. Repeats this for each count.
using Failing = std::function<bool(const std::function<void()>& call)>;
void in_turn(std::initializer_list<std::int64_t> counts,
             const std::function<void(const Failing& fails)>& round);
// Counts allocations without failing any. made() returns the count.
void count();
std::int64_t made();

}  // namespace gpunbd::server::test::failing_allocation
