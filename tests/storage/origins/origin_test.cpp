// Requests to an origin are timed, by operation.
#include "storage/origins/origin.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/storage/origins/memory_origin.hpp"

namespace gpunbd::storage::test {
namespace requests_of_origins {

using Operation = OriginTimes::Operation;

std::uint64_t ns(TraceClock::duration duration) {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(duration).count());
}

TEST_CASE("origin: a slow read counts with its time, also if it fails") {
    OriginContents contents(4096);
    contents.delay = std::chrono::milliseconds(20);
    MemoryOrigin origin(contents);
    std::array<std::byte, 512> memory{};
    const auto began = TraceClock::now();
    CHECK_FALSE(origin.read(0, memory));
    contents.fails_reads = true;
    CHECK(origin.read(0, memory));
    const auto took = TraceClock::now() - began;
    const Histogram& reads = origin.times().of(Operation::read);
    CHECK(reads.count() == 2);
    CHECK(reads.count_up_to(ns(contents.delay) - 1) == 0);
    CHECK(reads.sum() <= ns(took));
}

TEST_CASE("origin: each operation has times of its own") {
    OriginContents contents(4096);
    MemoryOrigin origin(contents);
    std::array<std::byte, 512> memory{};
    const auto counts = [&] {
        std::vector<std::uint64_t> out;
        for (const auto each :
             {Operation::read, Operation::write, Operation::zero, Operation::flush}) {
            out.push_back(origin.times().of(each).count());
        }
        return out;
    };
    origin.read(0, memory);
    CHECK(counts() == std::vector<std::uint64_t>{1, 0, 0, 0});
    origin.write(0, memory);
    CHECK(counts() == std::vector<std::uint64_t>{1, 1, 0, 0});
    origin.zero(0, 512, false);
    CHECK(counts() == std::vector<std::uint64_t>{1, 1, 1, 0});
    origin.flush();
    CHECK(counts() == std::vector<std::uint64_t>{1, 1, 1, 1});
}

TEST_CASE("origin: threads that record at the same time lose nothing") {
    constexpr std::uint64_t each = 200'000;
    OriginTimes times;
    std::vector<std::thread> threads;
    for (int i = 0; i != 4; ++i) {
        threads.emplace_back([&times] {
            for (std::uint64_t n = 0; n != each; ++n) {
                times.record(Operation::write, std::chrono::nanoseconds(3));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(times.of(Operation::write).count() == threads.size() * each);
    CHECK(times.of(Operation::write).sum() == threads.size() * each * 3);
}

}  // namespace requests_of_origins
}  // namespace gpunbd::storage::test
