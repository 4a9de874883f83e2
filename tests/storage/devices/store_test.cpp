#include "storage/devices/store.hpp"

#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::size_t line = 64;
constexpr std::size_t longest = 300;
constexpr std::byte untouched{0xEE};

struct alignas(line) Line {
    std::byte bytes[line];
};

std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 7 + 1); }

TEST_CASE(
    "store_streaming, zero_streaming: write exactly their range, for every alignment and length") {
    std::vector<Line> memory(longest / line + 3);
    auto* const base = memory.front().bytes;
    const std::size_t size = memory.size() * line;
    for (std::size_t to = 0; to != line; ++to) {
        for (std::size_t length = 0; length <= longest; ++length) {
            // The source may have any alignment. Allocates the exact size, so that AddressSanitizer
            // detects reads beyond it.
            const std::size_t skew = (to + length) % line;
            const auto source = std::make_unique<std::byte[]>(skew + length);
            std::byte* const from = source.get() + skew;
            for (std::size_t i = 0; i != length; ++i) from[i] = pattern(i);
            std::fill_n(base, size, untouched);
            store_streaming(base + to, from, length);
            store_fence();
            std::vector<std::byte> expected(size, untouched);
            if (length != 0) std::memcpy(expected.data() + to, from, length);
            REQUIRE(std::equal(expected.begin(), expected.end(), base));
            std::fill_n(base + to, length, untouched);
            zero_streaming(base + to, length);
            store_fence();
            std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(to), length, std::byte{0});
            REQUIRE(std::equal(expected.begin(), expected.end(), base));
        }
    }
}

TEST_CASE("load_streaming: reads exactly its range, for every alignment and length") {
    // Whole lines, because edges are read as whole lines.
    std::vector<Line> source(longest / line + 3);
    auto* const base = source.front().bytes;
    for (std::size_t i = 0; i != source.size() * line; ++i) base[i] = pattern(i);
    for (std::size_t from = 0; from != line; ++from) {
        for (std::size_t length = 0; length <= longest; ++length) {
            for (const std::size_t shift : {0U, 3U}) {
                std::vector<std::byte> memory(shift + length + 1, untouched);
                load_streaming(memory.data() + shift, base + from, length);
                std::vector<std::byte> expected(shift + length + 1, untouched);
                std::memcpy(expected.data() + shift, base + from, length);
                REQUIRE(memory == expected);
            }
        }
    }
}

TEST_CASE("demote: is a hint that changes no contents") {
    std::vector<Line> memory(longest / line + 3);
    auto* const base = memory.front().bytes;
    for (std::size_t i = 0; i != memory.size() * line; ++i) base[i] = pattern(i);
    const std::vector<Line> before = memory;
    for (std::size_t from = 0; from != line; ++from) {
        for (const std::size_t length : {0U, 1U, 64U, 65U, 300U}) demote(base + from, length);
    }
    CHECK(std::memcmp(base, before.front().bytes, memory.size() * line) == 0);
}

}  // namespace
}  // namespace gpunbd::storage::test
