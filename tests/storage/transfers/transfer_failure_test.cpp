// Replays a successful script with each step failing. Each time the statuses are correct, the
// requests end, and nothing stays lent.
#include "tests/sanitized.hpp"
#include "tests/storage/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint32_t chunk = 64 * kib;
constexpr std::uint32_t page = 128 * kib;

enum class Kind { write, read, zero, zero_keep };

struct Step {
    Kind kind;
    std::uint64_t offset;
    std::uint32_t length;
};

// For 8 pages. Chunks, pages and devices end within the requests.
constexpr Step happy[] = {
    {Kind::write, page - 1000, 2 * page + 2000},
    {Kind::read, 0, 8 * page},
    {Kind::zero_keep, page / 2, 3 * page},
    {Kind::write, 5 * page + 7, 2 * page},
    {Kind::zero, page / 4, 2 * page},
    {Kind::read, page, 6 * page},
    {Kind::write, 0, page + 1},
    {Kind::zero_keep, 7 * page, page},
    {Kind::read, 0, 8 * page},
};
constexpr std::size_t steps = std::size(happy);
constexpr std::uint32_t stride = gpunbd::test::is_sanitized ? 3 : 1;

// One page per slab, so that each first write allocates.
RigOptions options_of(std::string_view devices) {
    return {.devices = devices,
            .size = 8 * page,
            .page_size = page,
            .stripe_size = devices.size() == 1 ? 0 : page,
            .channels = {.chunk_size = chunk, .slots = 2, .pinned = 2 * chunk}};
}

constexpr std::string_view device_sets[] = {"s", "shsh", "ssssssss"};

std::unique_ptr<Job> begin(Rig& rig, ClientAccount& account, const Step& step) {
    switch (step.kind) {
        case Kind::write:
            return std::make_unique<WriteJob>(rig, *rig.channels, account, step.offset, step.length,
                                              static_cast<std::uint32_t>(step.offset));
        case Kind::read:
            return std::make_unique<ReadJob>(rig, *rig.channels, account, step.offset, step.length);
        default:
            return std::make_unique<ZeroJob>(rig, *rig.channels, account, step.offset, step.length,
                                             step.kind == Kind::zero_keep);
    }
}

struct Outcome {
    Status statuses[steps];
    std::uint64_t copies[steps + 1];       // before each step
    std::uint64_t allocations[steps + 1];  // before each step
};

std::uint64_t slabs_of(const Rig& rig) {
    std::uint64_t slabs = 0;
    for (const MemoryDevice* const memory : rig.memories) slabs += memory->slabs();
    return slabs;
}

Outcome play(Rig& rig, std::uint32_t polls_per_copy) {
    rig.script.polls_per_copy = polls_per_copy;
    Random random(polls_per_copy);
    ClientAccount account;
    Outcome outcome{};
    for (std::size_t i = 0; i != steps; ++i) {
        CAPTURE(i);
        const auto job = begin(rig, account, happy[i]);
        REQUIRE(run(*rig.channels, {job.get()}, random));
        outcome.statuses[i] = job->status();
        outcome.copies[i + 1] = rig.script.copies_seen;
        outcome.allocations[i + 1] = slabs_of(rig);
        rig.check_settled();
        REQUIRE(account.reads == 0);
        REQUIRE(account.writes == 0);
    }
    return outcome;
}

// Everything can be written and read again.
void check_recovered(Rig& rig) {
    rig.script.allocations_until_failure = FaultScript::never;
    ClientAccount account;
    Random random(7);
    const Step whole[] = {{Kind::write, 0, 8 * page}, {Kind::read, 0, 8 * page}};
    for (const Step& step : whole) {
        const auto job = begin(rig, account, step);
        REQUIRE(run(*rig.channels, {job.get()}, random));
        REQUIRE(job->status() == Status::ok);
    }
    rig.check_settled();
    rig.check_pages();
}

TEST_CASE("failures: a failed copy fails only its own request") {
    for (const std::string_view devices : device_sets) {
        const std::uint32_t polls = devices.size() == 1 ? 1 : 3;
        CAPTURE(devices);
        Rig first(options_of(devices));
        const Outcome whole = play(first, polls);
        for (const Status status : whole.statuses) REQUIRE(status == Status::ok);
        for (std::uint64_t k = 0; k < whole.copies[steps]; k += stride) {
            CAPTURE(k);
            Rig rig(options_of(devices));
            rig.script.copies_until_failure = static_cast<std::int64_t>(k);
            const Outcome outcome = play(rig, polls);
            // Only the request with the failing copy fails.
            for (std::size_t i = 0; i != steps; ++i) {
                CAPTURE(i);
                const bool hit = whole.copies[i] <= k && k < whole.copies[i + 1];
                REQUIRE(outcome.statuses[i] == (hit ? Status::io_error : Status::ok));
            }
            check_recovered(rig);
        }
    }
}

TEST_CASE("failures: a failed allocation fails only its own request") {
    for (const std::string_view devices : device_sets) {
        CAPTURE(devices);
        Rig first(options_of(devices));
        const Outcome whole = play(first, 1);
        std::int64_t k = 0;
        for (bool failed = true; failed; ++k) {
            CAPTURE(k);
            Rig rig(options_of(devices));
            rig.script.allocations_until_failure = k;
            const Outcome outcome = play(rig, 1);
            failed = false;
            for (std::size_t i = 0; i != steps; ++i) {
                CAPTURE(i);
                const Status status = outcome.statuses[i];
                const bool maps = happy[i].kind == Kind::write || happy[i].kind == Kind::zero_keep;
                REQUIRE((status == Status::ok || (maps && status == Status::no_space)));
                failed = failed || status != Status::ok;
                // Until the failure, the outcome is the same as without it.
                if (!failed) REQUIRE(outcome.copies[i + 1] == whole.copies[i + 1]);
            }
            check_recovered(rig);
        }
        CHECK(k > 1);
        // Each device has one page, and the script writes to seven, so the last run does not fail.
        if (devices == "ssssssss") CHECK(k == 8);
    }
}

TEST_CASE("failures: a device that fails at any copy ends every request") {
    for (const std::string_view devices : device_sets) {
        CAPTURE(devices);
        Rig first(options_of(devices));
        const Outcome whole = play(first, 2);
        for (std::uint64_t k = 0; k < whole.copies[steps]; k += stride) {
            CAPTURE(k);
            Rig rig(options_of(devices));
            rig.script.copies_until_dead = static_cast<std::int64_t>(k);
            const Outcome outcome = play(rig, 2);
            for (std::size_t i = 0; i != steps; ++i) {
                CAPTURE(i);
                if (k >= whole.copies[i + 1]) {
                    REQUIRE(outcome.statuses[i] == Status::ok);
                } else if (k >= whole.copies[i]) {
                    REQUIRE(outcome.statuses[i] == Status::io_error);
                } else if (devices.size() == 1 && happy[i].kind == Kind::write) {
                    REQUIRE(outcome.statuses[i] == Status::io_error);
                } else {
                    REQUIRE(outcome.statuses[i] != Status::no_space);
                }
            }
            // Its memory can still be freed.
            for (std::uint64_t p = 0; p != rig.pages(); ++p) rig.volume->unmap(p);
            CHECK(rig.volume->mapped_bytes() == 0);
            rig.volume.reset();
            for (const MemoryDevice* const memory : rig.memories) CHECK(memory->used() == 0);
        }
    }
}

// Abandons the request after a number of steps of its owner while all copies are held, and releases
// them afterwards.
TEST_CASE("abandon: at each stage, with the copies of the request in flight") {
    for (const std::string_view devices : {"s", "shsh"}) {
        for (const Kind kind : {Kind::write, Kind::read}) {
            for (const std::uint32_t free_polls : {0U, 1U, 4U}) {
                bool ended = false;
                for (std::uint32_t stage = 0; !ended; stage += stage < 40 ? stride : 7) {
                    CAPTURE(devices);
                    CAPTURE(free_polls);
                    CAPTURE(stage);
                    REQUIRE(stage < 200);
                    Rig rig(options_of(devices));
                    Random random(stage % 8);
                    ClientAccount account;
                    ClientAccount other;
                    const auto before = begin(rig, other, {Kind::write, 0, 8 * page});
                    REQUIRE(run(*rig.channels, {before.get()}, random));
                    settle(*rig.channels);
                    const auto job = begin(rig, account, {kind, 1000, 5 * page});
                    std::uint32_t polls = free_polls;
                    for (std::uint32_t i = 0; i != stage; ++i) {
                        job->step(random);
                        if (polls != 0) {
                            --polls;
                            rig.channels->poll();
                        } else if (i % 2 == 0) {
                            rig.script.hold = true;
                            rig.channels->poll();
                        }
                        // Polls from time to time, in case progress needs it.
                        if (i % 16 == 15) polls = 8, rig.script.hold = false;
                    }
                    rig.script.hold = true;
                    rig.channels->poll();
                    ended = job->ended();
                    job->abandon();
                    const bool busy = rig.channels->busy();
                    for (int i = 0; i != 10; ++i) {
                        job->step(random);
                        rig.channels->poll();
                    }
                    // It ends with its copies, or immediately if there are none.
                    CHECK(job->ended() == !busy);
                    if (busy) CHECK((account.reads != 0 || account.writes != 0));
                    rig.script.hold = false;
                    REQUIRE(run(*rig.channels, {job.get()}, random));
                    if (!ended) CHECK(job->status() == Status::io_error);
                    CHECK(account.reads == 0);
                    CHECK(account.writes == 0);
                    settle(*rig.channels);
                    check_recovered(rig);
                }
            }
        }
    }
}

TEST_CASE("failures: a dead device fails requests immediately, and mappings of others are served") {
    Rig rig(options_of("sh"));
    Random random(1);
    ClientAccount account;
    const auto before = begin(rig, account, {Kind::write, 0, 8 * page});
    REQUIRE(run(*rig.channels, {before.get()}, random));
    rig.script.copies_until_dead = 0;
    const auto kills = begin(rig, account, {Kind::read, 0, 10});
    REQUIRE(run(*rig.channels, {kills.get()}, random));
    CHECK(kills->status() == Status::io_error);
    CHECK(rig.devices[0]->failed());
    settle(*rig.channels);
    const std::uint64_t copies = rig.script.copies_seen;
    const std::pair<Step, Status> rows[] = {
        {{Kind::read, 0, 1}, Status::io_error},
        {{Kind::write, 0, 1}, Status::io_error},
        {{Kind::read, page, page}, Status::ok},
        {{Kind::write, page, page}, Status::ok},
        {{Kind::read, page, page + 1}, Status::io_error},
        {{Kind::write, page + 1, page}, Status::io_error},
    };
    for (const auto& [step, status] : rows) {
        CAPTURE(step.offset);
        const auto job = begin(rig, account, step);
        REQUIRE(run(*rig.channels, {job.get()}, random));
        CHECK(job->status() == status);
    }
    CHECK(rig.script.copies_seen == copies);
    // The reader learns the offset of the failure, even after an earlier one.
    SilentOwner owner;
    ReadTransfer read;
    const std::pair<Range, std::uint64_t> reads[] = {
        {{page, 2 * page}, 2 * page}, {{100, 100}, 100}, {{3 * page, 5 * page}, 4 * page}};
    for (const auto& [range, failed_at] : reads) {
        CAPTURE(failed_at);
        read.begin({*rig.volume, *rig.channels, account}, owner, range);
        CHECK(read.status() == Status::io_error);
        CHECK(read.failed_at() == failed_at);
        read.abandon();
        CHECK(read.idle());
    }
    rig.check_idle(*rig.channels);
}

}  // namespace
}  // namespace gpunbd::storage::test
