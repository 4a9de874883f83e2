#include "tests/storage/interleaving/arena.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include "tests/storage/interleaving/scheduler.hpp"

namespace gpunbd::interleaving::arena {

namespace {

constexpr std::size_t arena_bytes = 4 << 20;
alignas(64) std::array<std::byte, arena_bytes> memory;
std::array<std::byte, arena_bytes> saved;

// A table reserves much more than it uses. What it uses is at the start.
constexpr std::size_t max_tables = 16;
constexpr std::size_t table_room = std::size_t{65} << 20;
constexpr std::size_t table_used = 3 * 4096;
std::byte* tables = nullptr;
std::array<std::array<std::byte, table_used>, max_tables> saved_tables;

struct Marks {
    std::size_t bytes = 0;
    std::size_t tables = 0;
    std::chrono::nanoseconds time{};  // of std::chrono::steady_clock
};
Marks now;
Marks at_save;
bool active = false;

void* map(std::size_t bytes) {
    return reinterpret_cast<void*>(::syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

void* take(std::size_t bytes, std::size_t alignment) {
    const std::size_t begin = (now.bytes + alignment - 1) & ~(alignment - 1);
    if (bytes > arena_bytes - begin) std::abort();
    now.bytes = begin + bytes;
    return &memory[begin];
}

void* take_table(std::size_t bytes) {
    if (tables == nullptr) tables = static_cast<std::byte*>(map(max_tables * table_room));
    if (now.tables == max_tables || bytes > table_room) std::abort();
    std::byte* const out = tables + table_room * now.tables++;
    std::memset(out, 0, table_used);
    return out;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
    if (active) return take(bytes, alignment);
    void* const out = std::aligned_alloc(alignment, (bytes + alignment) & ~(alignment - 1));
    if (out == nullptr) std::abort();
    return out;
}

void release(void* at) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    if (address < begin || address >= begin + arena_bytes) std::free(at);
}

}  // namespace

bool use(bool on) {
    const bool before = active;
    active = on;
    return before;
}

void clear() { now = {}; }

void save() {
    at_save = now;
    std::memcpy(saved.data(), memory.data(), now.bytes);
    for (std::size_t i = 0; i != now.tables; ++i) {
        std::memcpy(saved_tables[i].data(), tables + i * table_room, table_used);
    }
}

void restore() {
    now = at_save;
    std::memcpy(memory.data(), saved.data(), now.bytes);
    for (std::size_t i = 0; i != now.tables; ++i) {
        std::memcpy(tables + i * table_room, saved_tables[i].data(), table_used);
    }
}

}  // namespace gpunbd::interleaving::arena

namespace arena = gpunbd::interleaving::arena;

void* operator new(std::size_t bytes) { return arena::allocate(bytes, 16); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return arena::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* at) noexcept { arena::release(at); }
void operator delete(void* at, std::size_t) noexcept { arena::release(at); }
void operator delete(void* at, std::align_val_t) noexcept { arena::release(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept { arena::release(at); }

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
    return time_point(arena::now.time);
}

// Calls of the code under test arrive here; those within the C library do not.
extern "C" {

void* mmap(void*, std::size_t bytes, int, int, int, off_t) noexcept {
    return arena::active ? arena::take_table(bytes) : arena::map(bytes);
}
int munmap(void*, std::size_t) noexcept { return 0; }
int mprotect(void*, std::size_t, int) noexcept { return 0; }

// The ids of tables are not compared.
int getentropy(void* bytes, std::size_t count) {
    std::memset(bytes, 0, count);
    return 0;
}

// Volume::clone() waits for writers: other fibers may go on meanwhile, and it gives up soon.
int nanosleep(const timespec*, timespec*) {
    arena::now.time += std::chrono::milliseconds(1);
    gpunbd::interleaving::yield(false);
    return 0;
}

}  // extern "C"
