// Runs up to four fibers in one thread and decides before each access to shared memory which one
// goes on. explore() runs all schedules with a bounded number of preemptions, depth first, by
// replaying decisions.
//
// Memory order: a store or an addition is visible to the other fibers later. It is pending until
// its fiber releases a mutex, and until the fiber's next sequentially consistent access if it is
// such itself. Before that, a fiber that accesses the location sees it or not, which is a decision
// too. A release is seen after all that precedes it. Loads are not reordered with each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpunbd {
class Mutex;
}

namespace gpunbd::interleaving {

// --- what the code under test calls ------------------------------------------------------------

std::uint64_t load(const void* at, unsigned bytes, std::memory_order order);
void store(void* at, unsigned bytes, std::uint64_t value, std::memory_order order);
std::uint64_t add(void* at, unsigned bytes, std::uint64_t value, std::memory_order order);
void lock(const Mutex& mutex);
void unlock(const Mutex& mutex);
void wait(const void* condition, const Mutex& mutex);
void notify(const void* condition);

// --- what the scenarios call -------------------------------------------------------------------

// Other fibers may go on first, which is not a preemption. `retries`: not before another fiber has
// changed something.
void yield(bool retries);
// A step without an access, before an operation that begins.
void pause();
// Distinguishes schedules, in addition to the state of memory and of the fibers.
void note(std::uint64_t event);
// A line among the steps that are printed, if logs_steps().
void log_step(const std::string& text);
bool logs_steps();
unsigned fiber();  // the number of the one that runs

struct Bound {
    unsigned preemptions = 2;
    unsigned delays = 1;  // stores that another fiber does not see at once
};

struct Explored {
    std::uint64_t schedules = 0;  // that ended or led to a known state
    std::uint64_t ended = 0;
    std::string failure;                  // empty: none
    std::vector<std::uint8_t> decisions;  // of the failed schedule
};

// `begin` brings the state to its start, and `end` checks it and returns a failure; both run
// outside of the fibers. `only`: null, or the decisions of one schedule. Then only this schedule
// runs, and its steps are printed.
struct Scenario {
    std::function<void()> begin;
    std::vector<std::function<void()>> fibers;
    std::function<std::string()> end;
};
Explored explore(const Scenario& scenario, const Bound& bound,
                 const std::vector<std::uint8_t>* only = nullptr);

// Ends the schedule as failed. In a fiber it does not return.
[[noreturn]] void fail(const std::string& why);

}  // namespace gpunbd::interleaving
