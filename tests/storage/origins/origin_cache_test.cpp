// Volumes with the contents of a file.
#include "storage/origins/origin_cache.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "storage/origins/origin_file.hpp"
#include "tests/checked.hpp"
#include "tests/contains.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/rig.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/temporary_folder.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint64_t origin_page = 64 * kib;
constexpr std::uint64_t origin_pages = 40;
constexpr std::uint64_t pages_in_memory = 8;
constexpr std::uint64_t origin_size = origin_pages * origin_page - 3 * 512;

// Page 3 and pages 10 to 12 of the file are holes, if the file system has holes.
bool is_written(std::uint64_t page) { return page != 3 && (page < 10 || page > 12); }

class OriginRig {
 public:
    explicit OriginRig(std::string_view devices = "h",
                       OriginCache::Ahead reads_ahead = OriginCache::Ahead::nothing)
        : rig({.devices = devices, .size = origin_size, .page_size = origin_page}) {
        write_file();
        rig.volume = checked(Volume::create({.size = origin_size,
                                             .page_size = origin_page,
                                             .memory = pages_in_memory * origin_page},
                                            {rig.devices.front().get()}));
        auto made = std::make_unique<OriginCache>(
            *rig.volume, checked(OriginFile::open(path(), OriginFile::Kind::file, false)),
            OriginCache::Options{.export_name = "cached", .reads_ahead = reads_ahead});
        cache = made.get();
        rig.volume->set_source(std::move(made));
    }

    std::string path() const { return folder.path("origin"); }
    Status read_page(std::uint64_t page, std::uint32_t length = 4 * kib) {
        return client.read(page * origin_page, length);
    }

    gpunbd::test::TemporaryFolder folder;
    Rig rig;
    Requests client{rig, Random(1)};
    const OriginCache* cache = nullptr;

 private:
    void write_file() {
        Random random(7);
        std::ofstream file(path(), std::ios::binary);
        for (std::uint64_t page = 0; page != origin_pages; ++page) {
            if (!is_written(page)) continue;
            const std::uint64_t begin = page * origin_page;
            const std::uint64_t end = std::min(begin + origin_page, origin_size);
            for (std::uint64_t at = begin; at != end; ++at) {
                rig.model[at] = static_cast<std::byte>(random.below(256));
            }
            file.seekp(static_cast<std::streamoff>(begin));
            file.write(reinterpret_cast<const char*>(rig.model.data() + begin),
                       static_cast<std::streamsize>(end - begin));
        }
        file.close();
        REQUIRE(::truncate(path().c_str(), origin_size) == 0);
        // A later change has another time stamp, however coarse those of the file system are.
        std::filesystem::last_write_time(
            path(), std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    }
};

TEST_CASE("origin: clients read the file, of which a part is in memory") {
    for (const std::string_view devices : {"h", "s", "w"}) {
        if (!has_devices(devices)) continue;
        CAPTURE(devices);
        OriginRig origin(devices, OriginCache::Ahead::sequences);
        Rig& rig = origin.rig;
        Random random(3);
        for (int round = 0; round != 20; ++round) {
            std::vector<ClientAccount> accounts(4);
            std::vector<std::unique_ptr<ReadJob>> reads;
            std::vector<Job*> jobs;
            for (ClientAccount& account : accounts) {
                const std::uint64_t at = random.below(origin_size - 1);
                const auto longest = std::min<std::uint64_t>(origin_size - at, 5 * origin_page);
                const std::uint32_t length = 1 + random.below(static_cast<std::uint32_t>(longest));
                reads.push_back(std::make_unique<ReadJob>(rig, *rig.channels, account, at, length));
                jobs.push_back(reads.back().get());
            }
            rig.finish(jobs, random);
            for (const Job* job : jobs) CHECK(job->status() == Status::ok);
        }
        CHECK(rig.volume->mapped_bytes() <= pages_in_memory * origin_page);
        CHECK(origin.cache->counters().evicted.value() != 0);
    }
}

TEST_CASE("origin: requests for one page cause one fetch, which serves later ones") {
    OriginRig origin;
    std::vector<ClientAccount> accounts(5);
    std::vector<std::unique_ptr<ReadJob>> reads;
    std::vector<Job*> jobs;
    for (ClientAccount& account : accounts) {
        reads.push_back(std::make_unique<ReadJob>(origin.rig, *origin.rig.channels, account,
                                                  5 * origin_page + 512 * reads.size(), 700));
        jobs.push_back(reads.back().get());
    }
    Random random(1);
    origin.rig.finish(jobs, random);
    CHECK(origin.read_page(5) == Status::ok);
    CHECK(origin.cache->counters().fetched.value() == 1);
}

TEST_CASE("origin: the page that makes room is not one that is used all the time") {
    OriginRig origin;
    std::uint64_t read = 0;
    for (std::uint64_t page = 0; page != origin_pages; ++page) {
        if (!is_written(page)) continue;
        ++read;
        CHECK(origin.read_page(page) == Status::ok);
        CHECK(origin.read_page(0) == Status::ok);
    }
    CHECK(origin.cache->counters().fetched.value() == read);
    CHECK(origin.cache->counters().evicted.value() == read - pages_in_memory);
}

TEST_CASE("origin: only clients that read in sequence are read ahead") {
    OriginRig origin("h", OriginCache::Ahead::sequences);
    for (const std::uint64_t page : {20, 5, 30, 14}) CHECK(origin.read_page(page) == Status::ok);
    CHECK(origin.cache->counters().prefetched.value() == 0);
    for (std::uint64_t page = 20; page != origin_pages; ++page) {
        CHECK(origin.read_page(page, 512) == Status::ok);
    }
    CHECK(origin.cache->counters().prefetched.value() != 0);
}

TEST_CASE("origin: all that fits into memory is read ahead, and nothing makes room for it") {
    const OriginRig origin("h", OriginCache::Ahead::all);
    const std::uint64_t expected = pages_in_memory;
    while (origin.cache->counters().prefetched.value() != expected) std::this_thread::yield();
    CHECK(origin.rig.volume->mapped_bytes() == expected * origin_page);
    CHECK(origin.cache->counters().evicted.value() == 0);
}

TEST_CASE("origin: a range is read before a client needs it, as far as the memory goes") {
    OriginRig origin;
    const Volume& volume = *origin.rig.volume;
    const Counter& prefetched = origin.cache->counters().prefetched;
    const auto prefetch = [&](std::uint64_t page, std::uint64_t pages) {
        volume.cache()->prefetch(page * origin_page + 512, pages * origin_page - 4096);
    };
    prefetch(5, 3);
    while (prefetched.value() != 3) std::this_thread::yield();
    for (const std::uint64_t page : {5, 6, 7}) CHECK(origin.read_page(page) == Status::ok);
    CHECK(origin.cache->counters().misses.value() == 0);
    // Page 39 follows all that the whole range has put into the queue.
    prefetch(0, origin_pages);
    while (prefetched.value() < 3 + pages_in_memory) std::this_thread::yield();
    prefetch(origin_pages - 1, 1);
    while (!volume.mapped(origin_pages - 1)) std::this_thread::yield();
    CHECK(prefetched.value() <= 3 + pages_in_memory + 1);
    CHECK(volume.mapped_bytes() <= pages_in_memory * origin_page);
}

TEST_CASE("origin: holes of the file are not read, and are holes of the volume") {
    OriginRig origin;
    CHECK(origin.read_page(3) == Status::ok);
    CHECK(origin.read_page(11) == Status::ok);
    const Volume& volume = *origin.rig.volume;
    const std::uint64_t hole_begin = 10 * origin_page;
    if (volume.in_source(11)) {
        MESSAGE("SKIPPED in part: the file system of /tmp has no holes");
        return;
    }
    CHECK(origin.cache->counters().fetched.value() == 0);
    const Volume::Run data = volume.contents_run_at(4 * origin_page, origin_size - 4 * origin_page);
    CHECK(data.device == 1);
    CHECK(data.length == 6 * origin_page);
    const Volume::Run hole = volume.contents_run_at(hole_begin, origin_size - hole_begin);
    CHECK(hole.device == 0);
    CHECK(hole.length == 3 * origin_page);
}

TEST_CASE("origin: an error of the file is an error of the requests that need it") {
    OriginRig origin;
    CHECK(origin.read_page(1) == Status::ok);
    SUBCASE("the file is shorter") { REQUIRE(::truncate(origin.path().c_str(), 4096) == 0); }
    SUBCASE("another program has written to it") {
        std::ofstream(origin.path(), std::ios::in | std::ios::out | std::ios::binary) << "changed";
        REQUIRE(::truncate(origin.path().c_str(), origin_size) == 0);
    }
    CHECK(origin.read_page(2) == Status::io_error);
    CHECK(origin.cache->counters().errors.value() == 1);
    CHECK(origin.read_page(1) == Status::ok);
}

TEST_CASE("origin: such a volume is neither cloned nor resized") {
    OriginRig origin;
    CHECK(contains(std::get<std::string>(origin.rig.volume->clone("clone")), "an origin"));
    CHECK(contains(origin.rig.volume->resize(2 * origin_size), "its origin"));
}

TEST_CASE("origin: files that cannot be one") {
    const gpunbd::test::TemporaryFolder folder;
    const auto error_of = [&](const std::string& path) {
        return std::get<std::string>(OriginFile::open(path, OriginFile::Kind::file, false));
    };
    CHECK(contains(error_of(folder.path("none")), "No such file"));
    CHECK(contains(error_of(folder.path()), "neither a file nor a block device"));
    CHECK(contains(error_of(folder.write("empty", "")), "it is empty"));
    CHECK(contains(error_of(folder.write("zstd", "\x28\xb5\x2f\xfd and more than that")), "zstd"));
}

}  // namespace
}  // namespace gpunbd::storage::test
