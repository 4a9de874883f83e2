// Writes to volumes with an origin.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "storage/origins/origin_cache.hpp"
#include "storage/origins/origin_clone.hpp"
#include "tests/checked.hpp"
#include "tests/contains.hpp"
#include "tests/storage/origins/memory_origin.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/rig.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test {
namespace {

using Writes = OriginCache::Writes;

constexpr std::uint64_t cached_part = 64 * kib;
constexpr std::uint64_t cached_page = 2 * cached_part;
constexpr std::uint64_t pages = 24;
constexpr std::uint64_t size = pages * cached_page - 3 * 512;

// A second device is the reserve of the first one.
struct WriteRig {
    explicit WriteRig(Writes writes, std::string_view devices = "h", std::uint64_t memory = 8,
                      std::uint64_t max_unwritten = 1 << 20,
                      std::chrono::milliseconds max_age = std::chrono::hours(1))
        : rig({.devices = devices, .size = size, .page_size = cached_page, .discards = false}) {
        Random random(7);
        for (std::uint64_t at = 0; at != size; ++at) {
            rig.model[at] = static_cast<std::byte>(random.below(256));
        }
        contents.now = contents.durable = rig.model;
        rig.set_known(0, size, true);
        rig.volume = checked(
            Volume::create({.size = size, .page_size = cached_page, .memory = memory * cached_page},
                           {rig.devices.front().get()}));
        auto made = std::make_unique<OriginCache>(
            *rig.volume, std::make_unique<MemoryOrigin>(contents),
            OriginCache::Options{
                .export_name = "cached",
                .reserve = devices.size() == 1 ? nullptr : rig.devices.back().get(),
                .reads_ahead = OriginCache::Ahead::sequences,
                .writes = writes,
                .max_unwritten = max_unwritten,
                .max_age = max_age});
        cache = made.get();
        rig.volume->set_source(std::move(made));
    }

    Status write(std::uint64_t offset, std::uint32_t length, bool is_durable = false) {
        WriteJob job(rig, *rig.channels, client.account, offset, length, ++client.seed, is_durable);
        return client.finish(job);
    }
    Status flush() {
        FlushJob job(rig, *rig.channels, client.account);
        return client.finish(job);
    }
    bool origin_is_current() { return contents.holds(contents.now, rig.model, rig.known); }
    bool origin_is_durable() { return contents.holds(contents.durable, rig.model, rig.known); }

    OriginContents contents{size};
    Rig rig;
    Requests client{rig, Random(1)};
    OriginCache* cache = nullptr;
};

std::unique_ptr<Job> random_job(WriteRig& origin, ClientAccount& account, std::uint64_t begin,
                                std::uint64_t end, Random& random) {
    const auto room = static_cast<std::uint32_t>(end - begin);
    // Often whole pages.
    std::uint64_t at = begin + random.below(room - 1);
    if (random.one_in(2) && at / cached_page * cached_page >= begin) at -= at % cached_page;
    auto length = 1 + random.below(static_cast<std::uint32_t>(end - at));
    if (random.one_in(3) && length > cached_page) length -= length % std::uint32_t{cached_page};
    Rig& rig = origin.rig;
    switch (random.below(8)) {
        case 0:
            return std::make_unique<ZeroJob>(rig, *rig.channels, account, at, length,
                                             random.one_in(2));
        case 1:
        case 2:
        case 3:
            return std::make_unique<ReadJob>(rig, *rig.channels, account, at, length);
        case 4:
            if (rig.volume->cache() == nullptr) break;
            return std::make_unique<FlushJob>(rig, *rig.channels, account);
        default:
            break;
    }
    return std::make_unique<WriteJob>(rig, *rig.channels, account, at, length,
                                      random.below(1 << 30), random.one_in(4));
}

// One job of each of four clients at once. Each has a part of the volume, and shares pages with its
// neighbours.
void run_random_jobs(WriteRig& origin, Random& random, bool may_fail = false) {
    std::vector<ClientAccount> accounts(4);
    std::vector<std::unique_ptr<Job>> owned;
    std::vector<Job*> jobs;
    for (std::uint64_t i = 0; i != accounts.size(); ++i) {
        owned.push_back(random_job(origin, accounts[i], i * size / accounts.size(),
                                   (i + 1) * size / accounts.size(), random));
        jobs.push_back(owned.back().get());
    }
    origin.rig.finish(jobs, random);
    for (const Job* job : jobs) CHECK((may_fail || job->status() == Status::ok));
}

TEST_CASE("origin: what clients write is read again, and the origin has it in the end") {
    for (const std::string_view devices : {"h", "s", "w"}) {
        if (!has_devices(devices)) continue;
        for (const Writes writes : {Writes::through, Writes::back}) {
            CAPTURE(devices);
            CAPTURE(static_cast<int>(writes));
            WriteRig origin(writes, devices, 8, 256 * kib, std::chrono::milliseconds(5));
            Random random(3);
            for (int round = 0; round != 24; ++round) {
                origin.contents.can_zero = random.one_in(2);
                run_random_jobs(origin, random);
                if (writes == Writes::through) CHECK(origin.origin_is_current());
                if (!random.one_in(8)) continue;
                CHECK(origin.flush() == Status::ok);
                CHECK(origin.origin_is_durable());
            }
            CHECK(origin.client.read_all() == Status::ok);
            CHECK(origin.rig.volume->mapped_bytes() <= 8 * cached_page);
            origin.rig.volume.reset();  // as an orderly stop does
            CHECK(origin.origin_is_durable());
        }
    }
}

TEST_CASE("origin: a write to a hole reads nothing from the origin") {
    WriteRig origin(Writes::back);
    ZeroJob zero(origin.rig, *origin.rig.channels, origin.client.account, 5 * cached_page,
                 2 * cached_page, false);
    CHECK(origin.client.finish(zero) == Status::ok);
    CHECK(origin.write(6 * cached_page - 4096, 8192) == Status::ok);
    CHECK(origin.contents.reads == 0);
    CHECK(origin.flush() == Status::ok);
    while (origin.cache->evict(pages) == 0) std::this_thread::yield();
    CHECK(origin.client.read_all() == Status::ok);
}

TEST_CASE("origin: a write is as safe as the mode, FUA and FLUSH promise") {
    SUBCASE("write-through: the origin has an answered write") {
        WriteRig origin(Writes::through);
        CHECK(origin.write(100, 5000) == Status::ok);
        CHECK(origin.origin_is_current());
        CHECK(origin.contents.flushes == 0);
    }
    SUBCASE("write-back: the memory has it") {
        WriteRig origin(Writes::back);
        CHECK(origin.write(100, 5000) == Status::ok);
        CHECK(origin.contents.writes == 0);
        CHECK(origin.cache->unwritten().bytes == 8 * kib);  // two blocks
        CHECK(origin.flush() == Status::ok);
        CHECK(origin.origin_is_durable());
        CHECK(origin.cache->unwritten().bytes == 0);
    }
    SUBCASE("FUA: it survives a loss of power") {
        for (const Writes writes : {Writes::through, Writes::back}) {
            WriteRig origin(writes);
            CHECK(origin.write(cached_page - 100, 5000, true) == Status::ok);
            CHECK(origin.origin_is_durable());
        }
    }
    SUBCASE("write-back: old changes are written without a request") {
        WriteRig origin(Writes::back, "h", 8, 1 << 20, std::chrono::milliseconds(1));
        CHECK(origin.write(100, 5000) == Status::ok);
        while (origin.cache->unwritten().bytes != 0) std::this_thread::yield();
        CHECK(origin.origin_is_current());
    }
}

TEST_CASE("origin: a write of whole pages does not read them") {
    WriteRig origin(Writes::through);
    CHECK(origin.write(2 * cached_page, 12 * cached_page) == Status::ok);
    CHECK(origin.contents.reads == 0);
    CHECK(origin.client.read(2 * cached_page, 12 * cached_page) == Status::ok);
}

TEST_CASE("origin: the parts of a page are read when a client needs them") {
    WriteRig origin(Writes::back);
    const Volume& volume = *origin.rig.volume;
    const auto& counters = origin.cache->counters();
    CHECK(origin.client.read(5 * cached_page + cached_part, 100) == Status::ok);
    CHECK(volume.missing_parts(5) == 1);
    CHECK(origin.client.read(5 * cached_page + cached_part + 100, 5000) == Status::ok);
    CHECK(counters.read_bytes.value() == cached_part);
    CHECK(origin.write(7 * cached_page - 100, 50) == Status::ok);
    CHECK(volume.missing_parts(6) == 1);
    CHECK(counters.read_bytes.value() == 2 * cached_part);
    CHECK(origin.client.read(5 * cached_page, cached_page) == Status::ok);
    CHECK(counters.read_bytes.value() == 3 * cached_part);
    CHECK(counters.fetched.value() == 2);
    CHECK(origin.client.read(10 * cached_page, 1) == Status::ok);
    CHECK(origin.write(10 * cached_page, cached_page) == Status::ok);  // all of a page
    CHECK(volume.missing_parts(10) == 0);
    CHECK(counters.read_bytes.value() == 4 * cached_part);
    CHECK(origin.client.read_all() == Status::ok);
}

// A cut or failed write leaves each byte as it was or as the client wrote it, in the origin too.
// The model does not know such bytes, so these tests compare the parts that no payload was sent
// for.
bool has_part_of(OriginContents& contents, const std::vector<std::byte>& before,
                 std::uint64_t begin) {
    const std::lock_guard lock(contents.mutex);
    const auto at = static_cast<std::ptrdiff_t>(begin);
    return std::equal(before.begin() + at, before.begin() + at + cached_part,
                      contents.now.begin() + at);
}

TEST_CASE("origin: a write that fails or is cut writes no part that was not read") {
    for (const std::string_view devices : {"h", "s"}) {
        for (const Writes writes : {Writes::through, Writes::back}) {
            CAPTURE(devices);
            CAPTURE(static_cast<int>(writes));
            WriteRig origin(writes, devices);
            const std::vector<std::byte> before = origin.rig.model;
            for (std::uint64_t page = 22; page != 12; --page) {  // more than the memory
                CHECK(origin.client.read(page * cached_page, cached_page) == Status::ok);
            }
            CHECK(origin.client.read(10 * cached_page, 1) == Status::ok);
            REQUIRE(origin.rig.volume->missing_parts(10) == 2);
            SUBCASE("its part cannot be read") {
                origin.contents.fails_reads = true;
                CHECK(origin.write(11 * cached_page - 100, 50) == Status::io_error);
                origin.contents.fails_reads = false;
            }
            SUBCASE("its client disconnects within a whole page") {
                WriteJob job(origin.rig, *origin.rig.channels, origin.client.account,
                             10 * cached_page, cached_page, 9);
                for (int i = 0; i != 3; ++i) origin.rig.channels->poll();
                job.abandon();
                REQUIRE(run(*origin.rig.channels, {&job}, origin.client.random));
            }
            CHECK(origin.flush() == Status::ok);
            CHECK(has_part_of(origin.contents, before, 10 * cached_page + cached_part));
            origin.rig.set_known(10 * cached_page + cached_part, cached_part, true);
            CHECK(origin.client.read(10 * cached_page + cached_part, cached_part) == Status::ok);
        }
    }
}

// Each byte of the origin is even and tells its part; those that clients write are odd.
TEST_CASE("origin: failures and clients that disconnect put no byte into another part") {
    for (const std::string_view devices : {"h", "s"}) {
        for (const Writes writes : {Writes::through, Writes::back}) {
            CAPTURE(devices);
            CAPTURE(static_cast<int>(writes));
            WriteRig origin(writes, devices, 8, 256 * kib, std::chrono::milliseconds(2));
            const auto of_part = [](std::uint64_t at) {
                return static_cast<std::byte>(2 * (at / cached_part + 1));
            };
            for (std::uint64_t at = 0; at != size; ++at) origin.rig.model[at] = of_part(at);
            origin.contents.now = origin.contents.durable = origin.rig.model;
            Random random(11);
            for (int round = 0; round != 40; ++round) {
                origin.contents.fails_reads = random.one_in(8);
                origin.contents.fails_writes = random.one_in(8);
                std::vector<ClientAccount> accounts(4);
                std::vector<std::unique_ptr<Job>> owned;
                std::vector<Job*> jobs;
                for (std::uint64_t i = 0; i != accounts.size(); ++i) {
                    const std::uint64_t begin = i * size / accounts.size();
                    const std::uint64_t end = (i + 1) * size / accounts.size();
                    std::uint64_t at =
                        begin + random.below(static_cast<std::uint32_t>(end - begin - 1));
                    if (random.one_in(2) && at / cached_page * cached_page >= begin) {
                        at -= at % cached_page;
                    }
                    const std::uint32_t longest = static_cast<std::uint32_t>(end - at);
                    std::uint32_t length = 1 + random.below(longest);
                    if (random.one_in(2)) length = std::min(length, std::uint32_t{5000});
                    if (random.one_in(2)) {
                        owned.push_back(std::make_unique<ReadJob>(origin.rig, *origin.rig.channels,
                                                                  accounts[i], at, length));
                    } else {
                        owned.push_back(std::make_unique<WriteJob>(origin.rig, *origin.rig.channels,
                                                                   accounts[i], at, length,
                                                                   random.below(1 << 30)));
                    }
                    jobs.push_back(owned.back().get());
                }
                for (std::uint32_t steps = random.below(40); steps != 0; --steps) {
                    jobs[random.below(4)]->step(random);
                    origin.rig.channels->poll();
                }
                if (random.one_in(2)) jobs[random.below(4)]->abandon();
                REQUIRE(run(*origin.rig.channels, jobs, random));
                if (random.one_in(4)) origin.flush();
            }
            origin.contents.fails_reads = origin.contents.fails_writes = false;
            while (origin.cache->unwritten().bytes != 0) std::this_thread::yield();
            std::uint64_t wrong = 0;
            const std::lock_guard lock(origin.contents.mutex);
            for (std::uint64_t at = 0; at != size; ++at) {
                const std::byte is = origin.contents.now[at];
                if ((is & std::byte{1}) == std::byte{} && is != of_part(at)) ++wrong;
            }
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("origin: a range is read ahead also where a client waits for a part of a page") {
    WriteRig origin(Writes::back);
    const Volume& volume = *origin.rig.volume;
    origin.contents.allowed_reads = 0;
    ReadJob job(origin.rig, *origin.rig.channels, origin.client.account, 7 * cached_page, 100);
    while (origin.contents.reads != 1) std::this_thread::yield();
    origin.cache->prefetch(7 * cached_page, 2 * cached_page);
    while (origin.contents.reads != 2) std::this_thread::yield();  // of page 8
    origin.contents.allowed_reads = ~0U;
    CHECK(origin.client.finish(job) == Status::ok);
    for (const std::uint64_t page : {7, 8}) {
        while (volume.missing_parts(page) != 0) std::this_thread::yield();
    }
}

TEST_CASE("origin: a part that can be read is not an error because of another one") {
    WriteRig origin(Writes::back);
    origin.contents.bad_byte = 7 * cached_page + cached_part + 5000;
    CHECK(origin.client.read(7 * cached_page, 100) == Status::ok);
    REQUIRE(origin.cache->drop(7));
    origin.contents.allowed_reads = 0;
    const std::uint32_t before = origin.contents.reads;
    origin.cache->prefetch(7 * cached_page, cached_page);
    while (origin.contents.reads == before) std::this_thread::yield();
    ReadJob job(origin.rig, *origin.rig.channels, origin.client.account, 7 * cached_page, 100);
    origin.contents.allowed_reads = ~0U;
    CHECK(origin.client.finish(job) == Status::ok);
}

TEST_CASE("origin: how pages of each size are divided into parts") {
    for (std::uint64_t page = 64 * kib; page <= 64 * mib; page *= 2) {
        CAPTURE(page);
        const PageDivision division(page);
        CHECK(division.parts() * division.part_size() == page);
        CHECK(division.part_size() == std::max(64 * kib, page / 64));
        CHECK(division.of(0, page) == division.all());
        CHECK(division.of(0, 1) == 1);
        CHECK(division.of(page - 1, 1) == Parts{1} << (division.parts() - 1));
        if (division.parts() == 1) continue;
        CHECK(division.of(division.part_size() - 1, 2) == 3);
        CHECK(division.of(division.part_size(), division.part_size()) == 2);
    }
}

TEST_CASE("origin: counters of the parts of pages") {
    WriteRig origin(Writes::back);
    const Volume& volume = *origin.rig.volume;
    const auto& counters = origin.cache->counters();
    SUBCASE("a page that is read ahead in two steps, and not used, is wasted") {
        origin.cache->prefetch(5 * cached_page, cached_part);
        while (volume.missing_parts(5) != 2) std::this_thread::yield();
        origin.cache->prefetch(5 * cached_page + cached_part, cached_part);
        while (volume.missing_parts(5) != 0) std::this_thread::yield();
        while (origin.cache->evict(1) != 1) std::this_thread::yield();
        CHECK(counters.prefetched.value() == 1);
        CHECK(counters.wasted.value() == 1);
    }
    SUBCASE("the last part ends with the volume") {
        CHECK(origin.client.read(size - 100, 100) == Status::ok);
        CHECK(counters.read_bytes.value() == size % cached_part);
    }
}

// Clients on threads of their own. Their parts of the volume meet within pages.
struct ThreadsRig {
    static constexpr std::uint64_t page = 8 * cached_part;
    static constexpr std::uint64_t bytes = 20 * page - 5 * cached_part - 3 * 512;

    ThreadsRig(Writes writes, std::string_view devices)
        : rig({.devices = devices, .size = bytes, .page_size = page}) {
        Random random(7);
        for (std::byte& each : rig.model) each = static_cast<std::byte>(random.below(256));
        contents.now = contents.durable = rig.model;
        rig.set_known(0, bytes, true);
        rig.volume = checked(Volume::create({.size = bytes, .page_size = page, .memory = 8 * page},
                                            {rig.devices.front().get()}));
        auto made = std::make_unique<OriginCache>(
            *rig.volume, std::make_unique<MemoryOrigin>(contents),
            OriginCache::Options{
                .export_name = "threads",
                .reserve = devices.size() == 1 ? nullptr : rig.devices.back().get(),
                .writes = writes,
                .max_unwritten = 2 * page,
                .max_age = std::chrono::milliseconds(3)});
        cache = made.get();
        rig.volume->set_source(std::move(made));
    }
    std::unique_ptr<Job> job(Channels& channels, ClientAccount& account, std::uint64_t begin,
                             std::uint64_t end, Random& random) {
        std::uint64_t at = begin + random.below(static_cast<std::uint32_t>(end - begin - 1));
        if (random.one_in(3) && at / page * page >= begin) at -= at % page;
        std::uint32_t length = 1 + random.below(static_cast<std::uint32_t>(end - at));
        if (random.one_in(2)) length = std::min(length, random.between(1, 3 * cached_part));
        if (random.one_in(4) && length > page) length -= length % std::uint32_t{page};
        switch (random.below(8)) {
            case 0:
                return std::make_unique<ZeroJob>(rig, channels, account, at, length,
                                                 random.one_in(2));
            case 1:
            case 2:
            case 3:
                return std::make_unique<ReadJob>(rig, channels, account, at, length);
            case 4:
                return std::make_unique<FlushJob>(rig, channels, account);
            default:
                return std::make_unique<WriteJob>(rig, channels, account, at, length,
                                                  random.below(1 << 30), random.one_in(6));
        }
    }

    OriginContents contents{bytes};
    Rig rig;
    Requests client{rig, Random(1)};
    OriginCache* cache = nullptr;
};

TEST_CASE("origin: clients on several threads, drops and requests to read ahead") {
    for (const std::string_view devices : {"h", "s"}) {
        for (const Writes writes : {Writes::through, Writes::back}) {
            CAPTURE(devices);
            CAPTURE(static_cast<int>(writes));
            ThreadsRig origin(writes, devices);
            std::atomic<std::uint32_t> running{3};
            std::vector<std::thread> threads;
            for (std::uint64_t i = 0; i != 3; ++i) {
                threads.emplace_back([&origin, &running, i] {
                    const auto channels = origin.rig.open_channels();
                    Random random(static_cast<std::uint32_t>(i + 1));
                    for (int round = 0; round != 60; ++round) {
                        std::vector<ClientAccount> accounts(2);
                        std::vector<std::unique_ptr<Job>> owned;
                        std::vector<Job*> jobs;
                        for (std::uint64_t j = 2 * i; j != 2 * i + 2; ++j) {
                            owned.push_back(origin.job(*channels, accounts[j % 2],
                                                       j * ThreadsRig::bytes / 6,
                                                       (j + 1) * ThreadsRig::bytes / 6, random));
                            jobs.push_back(owned.back().get());
                        }
                        if (!run(*channels, jobs, random)) std::abort();  // they hang
                        for (const Job* job : jobs) CHECK(job->status() == Status::ok);
                    }
                    --running;
                });
            }
            Random random(9);
            const std::uint64_t all = origin.rig.volume->pages();
            while (running != 0) {
                const std::uint64_t at = random.below(std::uint32_t{ThreadsRig::bytes - 1});
                const std::uint32_t most = random.one_in(8) ? 20 * ThreadsRig::page : 100'000;
                origin.cache->prefetch(
                    at, std::min<std::uint64_t>(1 + random.below(most), ThreadsRig::bytes - at));
                origin.cache->drop(random.below(static_cast<std::uint32_t>(all)));
                if (random.one_in(4)) origin.cache->evict(1);
                std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
            }
            for (std::thread& each : threads) each.join();
            CHECK(origin.cache->counters().errors.value() == 0);
            CHECK(origin.client.read_all() == Status::ok);
            origin.rig.volume.reset();
            CHECK(
                origin.contents.holds(origin.contents.durable, origin.rig.model, origin.rig.known));
        }
    }
}

TEST_CASE("origin: writes wait while too much is unwritten") {
    WriteRig origin(Writes::back, "h", 24, 2 * cached_page);
    origin.contents.blocks_writes = true;
    CHECK(origin.write(0, 2 * cached_page) == Status::ok);
    WriteJob job(origin.rig, *origin.rig.channels, origin.client.account, 5 * cached_page, 100, 9);
    for (int i = 0; i != 100; ++i) {
        job.step(origin.client.random);
        origin.rig.channels->poll();
    }
    CHECK_FALSE(job.ended());
    CHECK(origin.client.rig.volume->in_source(0));
    origin.contents.blocks_writes = false;
    CHECK(origin.client.finish(job) == Status::ok);
}

TEST_CASE("origin: failed writes") {
    SUBCASE("write-through: the request fails, and the contents are those of the origin") {
        WriteRig origin(Writes::through);
        const std::vector<std::byte> before = origin.rig.model;
        origin.contents.fails_writes = true;
        CHECK(origin.write(0, 2 * cached_page) == Status::io_error);
        CHECK(origin.write(5 * cached_page + 1, 100) == Status::io_error);
        ZeroJob zero(origin.rig, *origin.rig.channels, origin.client.account, 100, 200, false);
        CHECK(origin.client.finish(zero) == Status::io_error);
        origin.contents.fails_writes = false;
        origin.rig.set_known(0, size, true);
        CHECK(origin.rig.model == before);
        CHECK(origin.client.read_all() == Status::ok);
        CHECK(origin.write(0, 2 * cached_page) == Status::ok);
    }
    SUBCASE("write-back: FUA and FLUSH fail, and nothing that was answered is lost") {
        WriteRig origin(Writes::back);
        CHECK(origin.write(100, 5000) == Status::ok);
        origin.contents.fails_writes = true;
        CHECK(origin.flush() == Status::io_error);
        CHECK(origin.write(3 * cached_page, 100, true) == Status::io_error);
        CHECK(origin.client.read(100, 5000) == Status::ok);
        origin.contents.fails_writes = false;
        CHECK(origin.flush() == Status::ok);
        CHECK(origin.origin_is_durable());
    }
    SUBCASE("no flush succeeds after one that failed, since the origin may have lost writes") {
        WriteRig origin(Writes::through);
        CHECK(origin.write(100, 5000) == Status::ok);
        origin.contents.fails_flushes = true;
        CHECK(origin.flush() == Status::io_error);
        origin.contents.fails_flushes = false;
        CHECK(origin.flush() == Status::io_error);
        CHECK(origin.write(100, 100, true) == Status::io_error);
        CHECK(origin.write(100, 100) == Status::ok);
    }
    SUBCASE("a page that cannot be read cannot be changed") {
        WriteRig origin(Writes::back);
        origin.contents.fails_reads = true;
        CHECK(origin.write(100, 100) == Status::io_error);
        CHECK(origin.write(cached_page, cached_page) == Status::ok);
        origin.contents.fails_reads = false;
        origin.rig.set_known(0, cached_page, true);
        CHECK(origin.client.read_all() == Status::ok);
    }
}

TEST_CASE("origin: a page with changes is dropped once the origin has them") {
    WriteRig origin(Writes::back);
    CHECK(origin.write(100, 5000) == Status::ok);
    CHECK(origin.client.read(3 * cached_page, 1) == Status::ok);
    origin.contents.blocks_writes = true;
    CHECK(origin.cache->drop(3));
    CHECK_FALSE(origin.cache->drop(0));
    origin.contents.blocks_writes = false;
    while (!origin.cache->drop(0)) std::this_thread::yield();
    CHECK_FALSE(origin.rig.mapped(0));
    CHECK(origin.client.read_all() == Status::ok);
}

TEST_CASE("origin: a zero of everything does not prevent what makes room for reads") {
    WriteRig origin(Writes::back, "s");  // readers have copies, and pin no pages
    struct Reader {
        SilentOwner owner;
        ClientAccount account;
        ReadTransfer transfer;
    };
    Random random(9);
    for (int round = 0; round != 30; ++round) {
        for (int i = 0; i != 3; ++i) {
            const std::uint64_t at = random.below(static_cast<std::uint32_t>(size - 100));
            CHECK(origin.write(at, 100) == Status::ok);
        }
        std::vector<std::unique_ptr<Reader>> readers(12);
        Volume& volume = *origin.rig.volume;
        for (auto& each : readers) {
            each = std::make_unique<Reader>();
            const std::uint64_t at = random.below(static_cast<std::uint32_t>(size - 100));
            each->transfer.begin({volume, *origin.rig.channels, each->account}, each->owner,
                                 {at, 100});
        }
        ZeroJob zero(origin.rig, *origin.rig.channels, origin.client.account, 1, size - 2, false);
        REQUIRE(run(*origin.rig.channels, {&zero}, random));
        settle(*origin.rig.channels);
        CHECK(zero.status() == Status::ok);
        for (auto& each : readers) {
            CHECK(each->transfer.status() == Status::ok);
            each->transfer.abandon();
        }
    }
    CHECK(origin.cache->counters().errors.value() == 0);
}

TEST_CASE("origin: clients read from the origin what was clean on a device that fails") {
    for (std::uint32_t seed = 0; seed != 15; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        WriteRig origin(Writes::through, "sh");
        for (int round = 0; round != 4; ++round) run_random_jobs(origin, random);
        origin.rig.script.copies_until_dead = random.below(40);
        while (origin.rig.script.copies_until_dead >= 0) {
            CHECK(origin.client.read_all() == Status::ok);
        }
        for (int round = 0; round != 8; ++round) run_random_jobs(origin, random);
        CHECK(origin.client.read_all() == Status::ok);
        CHECK(origin.cache->counters().errors.value() == 0);
        CHECK(origin.rig.volume->memory().front().mapped == 0);
        CHECK(origin.rig.volume->memory().back().mapped <= 8 * cached_page);
        CHECK(origin.flush() == Status::ok);
        CHECK(origin.origin_is_durable());
    }
}

TEST_CASE("origin: a device fails during writes") {
    for (const Writes writes : {Writes::through, Writes::back}) {
        for (std::uint32_t seed = 0; seed != 15; ++seed) {
            CAPTURE(static_cast<int>(writes));
            CAPTURE(seed);
            Random random(seed);
            WriteRig origin(writes, "sh", 8, 256 * kib, std::chrono::milliseconds(5));
            origin.rig.script.copies_until_dead = random.below(200);
            while (origin.rig.script.copies_until_dead >= 0) {
                run_random_jobs(origin, random, true);
            }
            // What was not answered may fail once more, when it is written to the origin.
            for (int round = 0; round != 8; ++round) {
                run_random_jobs(origin, random, writes == Writes::back || round == 0);
            }
            // What is lost is an error, and never wrong.
            if (writes == Writes::through) CHECK(origin.client.read_all() == Status::ok);
            const Status flushed = origin.flush();
            if (writes == Writes::through) CHECK(flushed == Status::ok);
            if (flushed == Status::ok) CHECK(origin.origin_is_durable());
        }
    }
}

// A volume on a device that fails, larger than its reserve.
struct LargeRig {
    explicit LargeRig(Writes writes, std::uint64_t pages_of_it)
        : contents(pages_of_it * cached_page),
          rig({.devices = "sh", .size = contents.now.size(), .page_size = cached_page}) {
        rig.volume = checked(Volume::create(
            {.size = contents.now.size(), .page_size = cached_page, .memory = contents.now.size()},
            {rig.devices.front().get()}));
        auto made = std::make_unique<OriginCache>(
            *rig.volume, std::make_unique<MemoryOrigin>(contents),
            OriginCache::Options{.export_name = "large",
                                 .reserve = rig.devices.back().get(),
                                 .reads_ahead = OriginCache::Ahead::nothing,
                                 .writes = writes,
                                 .max_age = std::chrono::hours(1)});
        cache = made.get();
        rig.volume->set_source(std::move(made));
    }

    OriginContents contents;
    Rig rig;
    Requests client{rig, Random(1)};
    OriginCache* cache = nullptr;
};

TEST_CASE("origin: many pages are read at once from an origin that takes long") {
    constexpr std::uint32_t at_once = 24;
    LargeRig origin(Writes::back, 200);
    OriginContents& contents = origin.contents;
    contents.allowed_reads = 0;
    std::thread releases([&] {
        while (contents.reads < 6) std::this_thread::yield();
        // Each read that ends after a long time makes room for two.
        for (std::uint32_t ended = 1; ended != 6; ++ended) {
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
            contents.allowed_reads = ended;
            while (contents.reads < 6 + 2 * ended) std::this_thread::yield();
        }
        contents.allowed_reads = ~0U;
    });
    std::vector<ClientAccount> accounts(at_once);
    std::vector<std::unique_ptr<ReadJob>> reads;
    std::vector<Job*> jobs;
    for (std::uint64_t page = 0; page != at_once; ++page) {
        reads.push_back(std::make_unique<ReadJob>(origin.rig, *origin.rig.channels, accounts[page],
                                                  page * cached_page, 512));
        jobs.push_back(reads.back().get());
    }
    Random random(1);
    origin.rig.finish(jobs, random);
    releases.join();
    for (const Job* job : jobs) CHECK(job->status() == Status::ok);
}

TEST_CASE("origin: the reserve of a device that fails is 64 MiB") {
    LargeRig origin(Writes::through, 1200);
    origin.rig.script.copies_until_dead = 0;
    for (std::uint64_t at = 0; at < origin.rig.options.size; at += 5 * mib) {
        CHECK(origin.client.read(at, 5 * mib) == Status::ok);
    }
    CHECK(origin.rig.volume->memory().back().mapped == 64 * mib);
    CHECK_FALSE(origin.rig.volume->has_spills());
    CHECK(origin.rig.volume->set_spills({}).empty());  // as a reload does
    CHECK(origin.client.read(0, 5 * mib) == Status::ok);
}

TEST_CASE("origin: all that is lost with a device is known at once") {
    LargeRig origin(Writes::back, 200);
    CHECK(origin.client.write(0, 80 * cached_page) == Status::ok);
    origin.rig.script.copies_until_dead = 0;
    CHECK(origin.client.read(90 * cached_page, 1) == Status::ok);
    CHECK(origin.cache->unwritten().bytes == 0);
    CHECK(origin.client.write(90 * cached_page, 3 * cached_page) == Status::ok);
    CHECK(origin.client.read(3 * cached_page, 1) == Status::io_error);
    CHECK(origin.cache->unwritten().bytes == 3 * cached_page);  // max_age holds as before
}

TEST_CASE("origin: a write that waits for room does not fail with one that is lost") {
    WriteRig origin(Writes::back, "sh", 8, cached_page);
    origin.rig.script.polls_per_copy = 3000;
    origin.rig.script.copies_until_dead = 2;
    CHECK(origin.write(0, cached_page) == Status::ok);
    WriteJob held(origin.rig, *origin.rig.channels, origin.client.account, 5 * cached_page,
                  cached_page, 9);
    CHECK(origin.client.finish(held) == Status::ok);
}

TEST_CASE("origin: a write that a device that fails interrupts stops no other request") {
    for (const Writes writes : {Writes::through, Writes::back}) {
        WriteRig origin(writes, "sh");
        CHECK(origin.client.read(0, 1) == Status::ok);
        const auto others = origin.rig.open_channels();
        ClientAccount account;
        WriteJob slow(origin.rig, *others, account, 0, 100, 9);  // its client sends nothing
        origin.rig.script.copies_until_dead = 0;
        CHECK(origin.client.read(3 * cached_page, 1) == Status::ok);
        CHECK(origin.client.read(2000, 100) == Status::ok);
        CHECK(origin.write(3000, 100) == Status::ok);
        slow.abandon();
        REQUIRE(run(*others, {&slow}, origin.client.random));
        CHECK(slow.status() == Status::io_error);
        origin.rig.set_known(0, 100, false);
        CHECK(origin.client.read(0, cached_page) == Status::ok);
        CHECK(origin.flush() == Status::ok);
        CHECK(origin.origin_is_durable());
    }
}

TEST_CASE("origin: a flush that was in progress does not hide that changes are lost") {
    WriteRig origin(Writes::back, "sh");
    origin.contents.blocks_flushes = true;
    const auto others = origin.rig.open_channels();
    ClientAccount account;
    FlushJob first(origin.rig, *others, account);
    while (origin.contents.flushes == 0) std::this_thread::yield();
    CHECK(origin.write(5 * cached_page, 100) == Status::ok);
    origin.rig.script.copies_until_dead = 0;
    CHECK(origin.client.read(3 * cached_page, 1) == Status::ok);
    CHECK(origin.client.read(5 * cached_page, 1) == Status::io_error);
    origin.contents.blocks_flushes = false;
    REQUIRE(run(*others, {&first}, origin.client.random));
    CHECK(first.status() == Status::ok);
    CHECK(origin.flush() == Status::io_error);
}

TEST_CASE("origin: changes that are lost with a device are errors until they are zeroed") {
    WriteRig origin(Writes::back, "sh");
    CHECK(origin.write(100, 100) == Status::ok);
    CHECK(origin.client.read(3 * cached_page, 1) == Status::ok);
    origin.rig.script.copies_until_dead = 0;
    CHECK(origin.client.read(3 * cached_page, 1) == Status::ok);
    CHECK(origin.client.read(0, 1) == Status::io_error);
    CHECK(origin.flush() == Status::io_error);
    CHECK(origin.write(0, cached_page) == Status::io_error);
    CHECK(origin.cache->unwritten().bytes == 0);
    CHECK(origin.write(3 * cached_page, 100) == Status::ok);
    CHECK(origin.client.zero(0, cached_page / 2, false) == Status::io_error);
    CHECK(origin.client.zero(0, cached_page, false) == Status::ok);
    CHECK(origin.client.read_all() == Status::ok);
    CHECK(origin.write(100, 100) == Status::ok);
    CHECK(origin.client.read_all() == Status::ok);
    CHECK(origin.flush() == Status::io_error);  // those that were lost are not durable
    origin.rig.volume.reset();
    CHECK(origin.origin_is_current());
}

TEST_CASE("origin: clones share what they read, and have what they write for themselves") {
    for (const std::string_view devices : {"h", "s", "w"}) {
        if (!has_devices(devices)) continue;
        CAPTURE(devices);
        WriteRig origin(Writes::none, devices);
        const std::shared_ptr<Volume> base = std::move(origin.rig.volume);
        const std::vector<std::byte> before = origin.rig.model;
        Random random(5);
        for (int clone = 0; clone != 2; ++clone) {
            origin.rig.volume = checked(OriginClone::make(base, {.name = "clone"}, {}));
            origin.rig.model = before;
            origin.rig.set_known(0, size, true);
            for (int round = 0; round != 15; ++round) {
                run_random_jobs(origin, random);
            }
            CHECK(origin.client.read_all() == Status::ok);
            CHECK(base->mapped_bytes() <= 8 * cached_page);
        }
        origin.rig.volume.reset();
        origin.rig.model = before;
        origin.rig.set_known(0, size, true);
        CHECK(origin.origin_is_current());
        origin.rig.volume = checked(OriginClone::make(base, {.name = "clone"}, {}));
        CHECK(origin.client.read_all() == Status::ok);
        CHECK(origin.rig.volume->mapped_bytes() == 0);
        CHECK_FALSE(origin.rig.volume->contents_run_at(0, size).device == 0);
    }
}

TEST_CASE("origin: a larger clone ends with zeroes") {
    WriteRig origin(Writes::none);
    const std::shared_ptr<Volume> base = std::move(origin.rig.volume);
    CHECK(contains(std::get<std::string>(OriginClone::make(base, {.name = "clone"}, size - 1)),
                   "is less"));
    const std::uint64_t larger = size + 2 * cached_page;
    origin.rig.volume = checked(OriginClone::make(base, {.name = "clone"}, larger));
    origin.rig.options.size = larger;
    origin.rig.model.resize(larger);
    origin.rig.known.resize(larger, 1);
    CHECK(origin.client.read_all() == Status::ok);
    CHECK(origin.write(size - 100, 200) == Status::ok);
    CHECK(origin.client.read_all() == Status::ok);
}

TEST_CASE("origin: a clone that nothing was written to outlives the device") {
    WriteRig origin(Writes::none, "sh");
    const std::shared_ptr<Volume> base = std::move(origin.rig.volume);
    origin.rig.volume = checked(OriginClone::make(base, {.name = "clone"}, {}));
    CHECK(origin.client.read_all() == Status::ok);
    origin.rig.script.copies_until_dead = 3;
    CHECK(origin.client.read_all() == Status::ok);
    CHECK(origin.client.read_all() == Status::ok);
    CHECK(origin.write(100, 100) == Status::io_error);
    CHECK(origin.write(0, cached_page) == Status::io_error);
    CHECK(std::holds_alternative<std::string>(OriginClone::make(base, {.name = "later"}, {})));
}

TEST_CASE("origin: a TRIM makes holes, if the origin can") {
    WriteRig origin(Writes::through);
    const auto zero = [&](ZeroTransfer::Options options) {
        SilentOwner owner;
        ZeroTransfer transfer;
        transfer.begin({*origin.rig.volume, *origin.rig.channels, origin.client.account}, owner,
                       {cached_page, 2 * cached_page}, options);
        settle(*origin.rig.channels);
        CHECK(transfer.done());
        CHECK(transfer.status() == Status::ok);
    };
    origin.contents.can_zero = false;
    zero({.is_trim = true});
    CHECK(origin.origin_is_current());
    CHECK(origin.client.read_all() == Status::ok);
    origin.contents.can_zero = true;
    zero({.is_trim = true, .is_durable = true});
    std::fill_n(origin.rig.model.begin() + cached_page, 2 * cached_page, std::byte{});
    CHECK(origin.origin_is_durable());
    CHECK_FALSE(origin.rig.volume->in_source(1));
    CHECK(origin.client.read_all() == Status::ok);
    CHECK(origin.write(cached_page + 5, 10) == Status::ok);
    CHECK(origin.client.read_all() == Status::ok);
    CHECK(origin.origin_is_current());
}

}  // namespace
}  // namespace gpunbd::storage::test
