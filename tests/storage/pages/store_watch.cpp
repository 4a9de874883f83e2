#include "tests/storage/pages/store_watch.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/test.hpp"

namespace gpunbd::storage::test {

namespace {

struct Watched {
    std::vector<StoreWatch::Range> ranges;  // empty: no watch
    std::mutex* instant = nullptr;
    std::function<void()> after;
    struct sigaction segv_before {};
    struct sigaction trap_before {};
};

Watched watched;

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

constexpr bool can_step = true;
constexpr greg_t trap_flag = 0x100;

greg_t& flags_of(void* context) {
    return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
}

#else

constexpr bool can_step = false;
constexpr int trap_flag = 0;
int no_flags = 0;
int& flags_of(void*) { return no_flags; }

#endif

void protect(int how) {
    for (const StoreWatch::Range& each : watched.ranges) ::mprotect(each.begin, each.bytes, how);
}

bool is_watched(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return std::ranges::any_of(watched.ranges, [at](const StoreWatch::Range& each) {
        return at - reinterpret_cast<std::uintptr_t>(each.begin) < each.bytes;
    });
}

// The store faults on protected memory, which is made writable for that one instruction.
void at_store(int, siginfo_t* info, void* context) {
    if (!is_watched(info->si_addr)) {  // a fault of another kind
        ::sigaction(SIGSEGV, &watched.segv_before, nullptr);
        return;
    }
    std::mutex& instant = *watched.instant;
    instant.lock();
    if (watched.ranges.empty()) return instant.unlock();  // the watch ended meanwhile
    protect(PROT_READ | PROT_WRITE);
    flags_of(context) |= trap_flag;
}

void behind_store(int, siginfo_t*, void* context) {
    flags_of(context) &= ~trap_flag;
    protect(PROT_READ);
    watched.after();
    watched.instant->unlock();
}

}  // namespace

bool StoreWatch::is_possible() { return can_step; }

StoreWatch::StoreWatch(std::vector<Range> ranges, std::mutex& instant,
                       std::function<void()> after) {
    REQUIRE(watched.ranges.empty());
    watched.ranges = std::move(ranges);
    watched.instant = &instant;
    watched.after = std::move(after);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = at_store;
    REQUIRE(::sigaction(SIGSEGV, &action, &watched.segv_before) == 0);
    action.sa_sigaction = behind_store;
    REQUIRE(::sigaction(SIGTRAP, &action, &watched.trap_before) == 0);
    protect(PROT_READ);
}

StoreWatch::~StoreWatch() {
    const std::lock_guard lock(*watched.instant);
    protect(PROT_READ | PROT_WRITE);
    ::sigaction(SIGSEGV, &watched.segv_before, nullptr);
    ::sigaction(SIGTRAP, &watched.trap_before, nullptr);
    watched.ranges.clear();
}

}  // namespace gpunbd::storage::test
