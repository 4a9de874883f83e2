// Real memory, and memory that appears at several addresses: one file that is mapped repeatedly.
#include "storage/devices/pci/bar_rules.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

// A window whose first part is memory, which the remainder repeats.
class Window {
 public:
    Window(std::uint64_t bytes, std::uint64_t behind) : bytes_(bytes) {
        const int file = ::memfd_create("gpunbd window", MFD_CLOEXEC);
        REQUIRE(file >= 0);
        REQUIRE(::ftruncate(file, static_cast<off_t>(behind)) == 0);
        void* const base = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(base != MAP_FAILED);
        at = static_cast<std::byte*>(base);
        for (std::uint64_t part = 0; part < bytes; part += behind) {
            REQUIRE(::mmap(at + part, behind, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                           0) != MAP_FAILED);
        }
        ::close(file);
    }
    ~Window() { ::munmap(at, bytes_); }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;

    std::byte* at = nullptr;

 private:
    const std::uint64_t bytes_;
};

TEST_CASE("memory check: accepts memory of any size") {
    for (const std::uint64_t bytes : {4 * kib, 64 * kib, 3 * mib, 16 * mib}) {
        CAPTURE(bytes);
        const Window window(bytes, bytes);
        CHECK(reason_not_memory(window.at, bytes).empty());
    }
    // Has more pages than the check has steps.
    const Window large(512 * mib, 512 * mib);
    CHECK(reason_not_memory(large.at, 512 * mib).empty());
}

TEST_CASE("memory check: refuses a window that is larger than its memory") {
    struct Row {
        std::uint64_t bytes;
        std::uint64_t behind;
        const char* size;
    };
    for (const Row& row : {Row{16 * mib, 4 * mib, "4 MiB"}, Row{16 * mib, 8 * mib, "8 MiB"},
                           Row{64 * kib, 4 * kib, "4 KiB"}, Row{512 * mib, 64 * mib, "64 MiB"},
                           Row{12 * mib, 3 * mib, "3 MiB"}}) {
        CAPTURE(row.size);
        const Window window(row.bytes, row.behind);
        CHECK(reason_not_memory(window.at, row.bytes) ==
              std::string("it has only ") + row.size +
                  " of memory, which repeats; set its capacity to that size");
        CHECK(reason_not_memory(window.at, row.behind).empty());
    }
}

TEST_CASE("memory check: refuses memory that does not keep written data, at first or later") {
    const Window window(mib, mib);
    struct Fault {
        int pass;
        std::uint64_t place;
        int value;
    };
    for (const Fault& fault : {Fault{1, 0, 0xff}, Fault{1, 512 * kib, 0xff}, Fault{2, 4096, 0},
                               Fault{2, 64, 0}, Fault{1, mib - 64, 0xff}, Fault{1, 2048, 0xff}}) {
        CAPTURE(fault.place);
        int passes = 0;
        const std::string why_not = reason_not_memory(window.at, mib, [&] {
            store_fence();
            if (++passes == fault.pass) std::memset(window.at + fault.place, fault.value, 8);
        });
        CHECK(why_not == "it is not memory: byte " + std::to_string(fault.place) +
                             " does not keep the written value");
    }
    // One bit is stuck.
    int passes = 0;
    const std::string why_not = reason_not_memory(window.at, mib, [&] {
        store_fence();
        if (++passes == 2) window.at[8192 + 63] &= std::byte{0x7f};
    });
    CHECK(why_not == "it is not memory: byte 8192 does not keep the written value");
}

}  // namespace
}  // namespace gpunbd::storage::test
