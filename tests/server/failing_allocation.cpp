#include "tests/server/failing_allocation.hpp"

#include <openssl/crypto.h>

#include <cerrno>
#include <new>

#include "tests/test.hpp"

namespace gpunbd::server::test::failing_allocation {

namespace {

thread_local constinit bool takes_part = false;
std::atomic<bool> armed{false};
std::atomic<std::int64_t> number_made{0};
std::int64_t first_to_fail = 0;
std::int64_t last_to_fail = 0;

bool fails() {
    if (!takes_part || !armed.load(std::memory_order_acquire)) return false;
    const std::int64_t number = ++number_made;
    return number >= first_to_fail && number <= last_to_fail;
}

void* allocate(std::size_t bytes) noexcept {
    return fails() ? nullptr : std::malloc(std::max<std::size_t>(bytes, 1));
}

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    void* memory = nullptr;
    const std::size_t aligned = std::max(alignment, sizeof(void*));
    return fails() || ::posix_memalign(&memory, aligned, bytes) != 0 ? nullptr : memory;
}

void* or_throw(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

std::size_t number_of(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

void take_part() { takes_part = true; }

void fail_openssl_too() {
    ::CRYPTO_set_mem_functions([](std::size_t bytes, const char*, int) { return allocate(bytes); },
                               [](void* old, std::size_t bytes, const char*, int) {
                                   return fails() ? nullptr : std::realloc(old, bytes);
                               },
                               [](void* memory, const char*, int) { std::free(memory); });
}

void arm(std::int64_t number, std::int64_t count) {
    number_made = 0;
    first_to_fail = number;
    last_to_fail = number + (count - 1);
    armed.store(true, std::memory_order_release);
}

bool disarm() {
    armed = false;
    return made() >= first_to_fail;
}

void in_turn(std::initializer_list<std::int64_t> counts,
             const std::function<void(const Failing& fails)>& round) {
    take_part();
    for (const std::int64_t count : counts) {
        bool failed = true;
        for (std::int64_t number = 1; failed; ++number) {
            CAPTURE(count);
            CAPTURE(number);
            round([&](const std::function<void()>& call) {
                arm(number, count);
                try {
                    call();
                } catch (const std::bad_alloc&) {
                }
                return failed = disarm();
            });
        }
    }
}

void count() { arm(std::numeric_limits<std::int64_t>::max()); }

std::int64_t made() { return number_made; }

}  // namespace gpunbd::server::test::failing_allocation

namespace fa = gpunbd::server::test::failing_allocation;

// NOLINTBEGIN: this file replaces them on purpose, and their signatures are given
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
    void* const memory = fa::allocate(bytes, alignment);
    if (memory == nullptr) errno = ENOMEM;
    return memory;
}

void* operator new(std::size_t bytes) { return fa::or_throw(fa::allocate(bytes)); }
void* operator new[](std::size_t bytes) { return fa::or_throw(fa::allocate(bytes)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return fa::allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
    return fa::allocate(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return fa::or_throw(fa::allocate(bytes, fa::number_of(alignment)));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return fa::or_throw(fa::allocate(bytes, fa::number_of(alignment)));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return fa::allocate(bytes, fa::number_of(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
    return fa::allocate(bytes, fa::number_of(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
    std::free(memory);
}
// NOLINTEND
