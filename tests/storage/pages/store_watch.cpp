#include "tests/storage/pages/store_watch.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <utility>

namespace gpunbd::storage::test {

namespace {

struct Watched {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;  // 0: no watch
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

void protect(int how) { ::mprotect(reinterpret_cast<void*>(watched.begin), watched.bytes, how); }

// The store faults on protected memory, which is made writable for that one instruction.
void at_store(int, siginfo_t* info, void* context) {
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
    if (at - watched.begin >= watched.bytes) {  // a fault of another kind
        ::sigaction(SIGSEGV, &watched.segv_before, nullptr);
        return;
    }
    std::mutex& instant = *watched.instant;
    instant.lock();
    if (watched.bytes == 0) return instant.unlock();  // the watch ended meanwhile
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

StoreWatch::StoreWatch(void* begin, std::size_t bytes, std::mutex& instant,
                       std::function<void()> after) {
    REQUIRE(watched.bytes == 0);
    watched.begin = reinterpret_cast<std::uintptr_t>(begin);
    watched.bytes = bytes;
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
    watched.bytes = 0;
}

}  // namespace gpunbd::storage::test
