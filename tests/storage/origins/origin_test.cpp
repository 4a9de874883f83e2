// Requests to an origin are timed, by operation.
#include "storage/origins/origin.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "storage/origins/origin_file.hpp"
#include "tests/checked.hpp"
#include "tests/storage/origins/memory_origin.hpp"
#include "tests/temporary_folder.hpp"

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

namespace contents_of_origins {

std::unique_ptr<OriginFile> opened(const std::string& path, bool is_writable) {
    return checked(OriginFile::open(path, OriginFile::Kind::file, is_writable));
}

TEST_CASE("origin: a file that is only read has another id once its contents have changed") {
    const gpunbd::test::TemporaryFolder folder;
    const std::string path = folder.write("file", std::string(8192, 'a'));
    const auto first = opened(path, false);
    const SourceId known = first->id_of_contents();
    CHECK(opened(path, false)->id_of_contents() == known);
    const auto set_time = [&](timespec modified) {
        const std::array<timespec, 2> times{timespec{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, modified};
        REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0) == 0);
    };
    std::vector<SourceId> others;
    for (const timespec modified : {timespec{1, 0}, timespec{1, 1}, timespec{2, 0}}) {
        set_time(modified);
        others.push_back(opened(path, false)->id_of_contents());
    }
    std::filesystem::resize_file(path, 4096);
    set_time({2, 0});
    others.push_back(opened(path, false)->id_of_contents());
    std::filesystem::rename(folder.write("other", std::string(4096, 'a')), path);
    set_time({2, 0});
    others.push_back(opened(path, false)->id_of_contents());
    others.push_back(known);
    std::ranges::sort(others);
    CHECK(std::ranges::adjacent_find(others) == others.end());
    // As it was opened.
    CHECK(first->id_of_contents() == known);
    // One that gpunbd writes to stays the same file.
    const auto before = opened(path, true)->id_of_contents();
    set_time({3, 0});
    CHECK(opened(path, true)->id_of_contents() == before);
    CHECK(opened(path, false)->id() == before);
}

}  // namespace contents_of_origins
}  // namespace gpunbd::storage::test
