// Transfers compared with a model, for various ranges, concurrency and amounts of staging memory.
#include "tests/storage/pages/words.hpp"
#include "tests/storage/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

constexpr std::uint32_t chunk = 64 * kib;
constexpr std::uint32_t page = 128 * kib;

struct Setting {
    const char* name;
    const char* devices;
    std::uint32_t slots;
    std::size_t pinned;
    std::uint32_t polls_per_copy;
    std::uint64_t stripe_size = 0;
    std::uint64_t capacity = std::uint64_t{1} << 40;
    std::uint32_t in_place_up_to = 0;
};

constexpr Setting short_in_place = {.name = "short in place, long staged",
                                    .devices = "s",
                                    .slots = 2,
                                    .pinned = 256 * kib,
                                    .polls_per_copy = 1,
                                    .in_place_up_to = chunk};

// In linear layouts over several devices, each but the last has one page.
constexpr Setting settings[] = {
    {"in place", "h", 2, 256 * kib, 1},
    {"staged", "s", 2, 256 * kib, 1},
    {"staged, one slot", "s", 1, 64 * kib, 2},
    {"staged, eight slots", "s", 8, 1024 * kib, 3},
    {"staged, less memory than slots", "s", 8, 128 * kib, 1},
    {"striped, staged and in place", "sh", 2, 64 * kib, 1, page},
    {"striped, three staged", "sss", 2, 64 * kib, 2, page},
    {"linear, mixed", "hshs", 2, 128 * kib, 1, 0, page},
    {"a BAR", "b", 2, 256 * kib, 1},
    {"striped, BARs and in place", "bbh", 2, 64 * kib, 1, page},
    {"the example driver", "e", 2, 256 * kib, 1},
    {"striped, the example driver and in place", "eh", 2, 64 * kib, 1, page},
    {"Vulkan in place", "v", 2, 256 * kib, 1},
    {"Vulkan through staging memory", "w", 2, 256 * kib, 1},
    short_in_place,
};

RigOptions options_of(const Setting& setting) {
    return {.devices = setting.devices,
            .page_size = page,
            .stripe_size = setting.stripe_size,
            .capacity = setting.capacity,
            .channels = {.chunk_size = chunk, .slots = setting.slots, .pinned = setting.pinned}};
}

struct CountingOwner final : TransferOwner {
    int wake_ups = 0;
    void transfer_moved(Transfer&) override { ++wake_ups; }
};

// A rig, one client, and its requests one after another.
struct Client : Requests {
    Rig own;

    explicit Client(const Setting& setting)
        : Requests{own, Random(setting.slots)}, own(options_of(setting)) {
        own.script.polls_per_copy = setting.polls_per_copy;
        own.script.in_place_up_to = setting.in_place_up_to;
    }
    void check_clean() {
        rig.check_idle(*rig.channels);
        rig.check_pages();
    }
};

std::vector<std::uint64_t> boundaries(std::uint64_t size) {
    std::vector<std::uint64_t> at = {
        0,        1,        4096,         chunk - 1,    chunk,    chunk + 1,    page - 1,
        page,     page + 1, page + chunk, 2 * page - 1, 2 * page, 2 * page + 1, 3 * page,
        size - 1, size};
    return at;
}

TEST_CASE("transfers: writes, reads and zeroes with every pair of boundaries") {
    for (const Setting& setting : settings) {
        if (!has_devices(setting.devices)) continue;
        CAPTURE(setting.name);
        Client client(setting);
        const std::uint64_t size = client.rig.options.size;
        const std::vector<std::uint64_t> at = boundaries(size);
        std::uint32_t round = 0;
        for (std::size_t i = 0; i != at.size(); ++i) {
            for (std::size_t j = i + 1; j != at.size(); ++j) {
                const std::uint64_t offset = at[i];
                const auto length = static_cast<std::uint32_t>(at[j] - at[i]);
                CAPTURE(offset);
                CAPTURE(length);
                REQUIRE(client.write(offset, length) == Status::ok);
                REQUIRE(client.read(offset, length) == Status::ok);
                // The surrounding bytes have not changed.
                REQUIRE(client.read_all() == Status::ok);
                switch (round++ % 3) {
                    case 0:
                        REQUIRE(client.zero(offset, length, false) == Status::ok);
                        break;
                    case 1:
                        REQUIRE(client.zero(offset, length, true) == Status::ok);
                        for (std::uint64_t p = offset / page; p * page < offset + length; ++p) {
                            REQUIRE(client.rig.mapped(p));
                        }
                        break;
                    default:
                        break;  // later requests overwrite it
                }
                REQUIRE(client.read_all() == Status::ok);
            }
        }
        client.check_clean();
    }
}

TEST_CASE("transfers: holes are returned as holes, and zeroing holes needs no copy") {
    for (const Setting& setting : settings) {
        if (!has_devices(setting.devices)) continue;
        CAPTURE(setting.name);
        Client client(setting);
        Rig& rig = client.rig;
        const auto size = static_cast<std::uint32_t>(rig.options.size);
        REQUIRE(client.write(page + 5, 10) == Status::ok);
        const std::uint64_t copies = rig.script.copies_seen;
        REQUIRE(client.zero(2 * page, size - 2 * page, false) == Status::ok);
        REQUIRE(client.zero(10, 100, false) == Status::ok);
        CHECK_FALSE(rig.mapped(0));
        CHECK(rig.script.copies_seen == copies);

        SilentOwner owner;
        ReadTransfer transfer;
        transfer.begin({*rig.volume, *rig.channels, client.account}, owner, {7, size - 7});
        std::uint64_t at = 7;
        ReadTransfer::Piece piece;
        while (!transfer.all_taken()) {
            rig.channels->poll();
            std::this_thread::yield();  // to threads that copy
            while (transfer.next(piece)) {
                REQUIRE(piece.offset == at);
                CHECK((piece.data == nullptr) == (at / page != 1));
                CHECK(at / page == (at + piece.length - 1) / page);
                at += piece.length;
                transfer.give_back();
            }
        }
        CHECK(at == size);
        CHECK(transfer.idle());

        // The volume ends within its last page; the request covers all of it.
        REQUIRE(client.write(size - 1, 1) == Status::ok);
        REQUIRE(client.zero(3 * page, size - 3 * page - 1, false) == Status::ok);
        CHECK(rig.mapped(3));
        REQUIRE(client.zero(3 * page, size - 3 * page, false) == Status::ok);
        CHECK_FALSE(rig.mapped(3));

        // With `keep_pages`, a hole gets a page that reads as zeroes.
        REQUIRE(client.zero(10, 100, true) == Status::ok);
        CHECK(rig.mapped(0));
        CHECK_FALSE(rig.mapped(2));
        REQUIRE(client.read_all() == Status::ok);
        client.check_clean();
    }
}

TEST_CASE("transfers: on a device in place, payload is lent directly from the page") {
    RigOptions options;
    Rig rig(options);
    rig.map_all();
    ClientAccount account;
    CountingOwner owner;
    WriteTransfer write;
    write.begin({*rig.volume, *rig.channels, account}, owner, {page - 10, 20});
    iovec lent[3];
    REQUIRE(write.lend(lent) == 2);
    CHECK(lent[0].iov_base == rig.volume->find(0).cpu() + page - 10);
    CHECK(lent[0].iov_len == 10);
    CHECK(lent[1].iov_base == rig.volume->find(1).cpu());
    CHECK(lent[1].iov_len == 10);
    write.filled(3);
    REQUIRE(write.lend(std::span(lent).first(1)) == 1);
    CHECK(lent[0].iov_base == rig.volume->find(0).cpu() + page - 7);
    CHECK(lent[0].iov_len == 7);
    write.filled(17);
    CHECK(write.all_filled());
    CHECK(write.done());
    ReadTransfer read;
    read.begin({*rig.volume, *rig.channels, account}, owner, {page - 1, 5});
    ReadTransfer::Piece piece;
    REQUIRE(read.next(piece));
    CHECK(piece.data == rig.volume->find(0).cpu() + page - 1);
    REQUIRE(read.next(piece));
    CHECK(piece.data == rig.volume->find(1).cpu());
    CHECK_FALSE(read.next(piece));
    // A lent page is not reused, even after it was unmapped, except for its own page number.
    const std::byte* const held = piece.data;
    rig.volume->unmap(1);
    PageRef other = map_page(*rig.volume, 2);
    CHECK(other.cpu() != held);
    REQUIRE(rig.volume->map(1, other) == Status::ok);
    CHECK(other.cpu() == held);
    other.reset();
    read.give_back();
    read.give_back();
    CHECK(read.idle());
    rig.check_idle(*rig.channels);
    rig.check_pages();
}

TEST_CASE("transfers: a write uses as many staging slots as permitted") {
    for (const std::uint32_t slots : {1U, 2U, 8U}) {
        CAPTURE(slots);
        Rig rig({.devices = "s",
                 .size = 16 * page,
                 .channels = {.chunk_size = chunk, .slots = slots, .pinned = 2048 * kib}});
        rig.map_all();
        rig.script.hold = true;
        ClientAccount account;
        CountingOwner owner;
        WriteTransfer write;
        write.begin({*rig.volume, *rig.channels, account}, owner, {0, 16 * page});
        CHECK(account.writes == std::size_t{slots} * chunk);
        iovec lent[32];
        CHECK(write.lend(lent) == slots);
        for (std::uint32_t i = 0; i != slots; ++i) write.filled(chunk);
        CHECK(write.lend(lent) == 0);
        for (int i = 0; i != 5; ++i) rig.channels->poll();
        CHECK(owner.wake_ups == 0);
        CHECK(rig.channels->busy());
        rig.script.hold = false;
        rig.channels->poll();
        CHECK(owner.wake_ups == static_cast<int>(slots));
        CHECK(write.lend(lent) == slots);
        write.abandon();
        CHECK(write.done());
        CHECK(account.writes == 0);
        rig.check_idle(*rig.channels);
        rig.check_pages();
    }
}

TEST_CASE("transfers: each page of a write uses one path, for any chunk size") {
    Client client(short_in_place);
    struct Write {
        std::uint64_t offset;
        std::uint32_t length;
        std::uint64_t copies;
    };
    constexpr Write writes[] = {
        {0, chunk, 0},
        {100, chunk, 0},
        {0, chunk + 1, 2},                 // one copy, no byte in place
        {0, page, 2},                      // the last chunk is not in place either
        {page - 1000, 2000, 0},            // both sides in place
        {page - 1000, 1000 + page, 2},     // one side in place, the other staged
        {chunk - 1, page - chunk + 2, 2},  // the other way round
    };
    for (const Write& one : writes) {
        CAPTURE(one.offset);
        CAPTURE(one.length);
        const std::uint64_t before = client.rig.script.copies_seen;
        REQUIRE(client.write(one.offset, one.length) == Status::ok);
        CHECK(client.rig.script.copies_seen - before == one.copies);
        REQUIRE(client.read_all() == Status::ok);
    }
    client.check_clean();
}

TEST_CASE("transfers: copies say whether their slab is revocable") {
    for (const bool revocable : {false, true}) {
        CAPTURE(revocable);
        Client client(settings[1]);
        client.rig.script.revocable = revocable;
        REQUIRE(client.write(0, page) == Status::ok);
        REQUIRE(client.read_all() == Status::ok);
        const std::uint64_t copies = client.rig.script.copies_seen;
        CHECK(copies != 0);
        CHECK(client.rig.script.revocable_copies_seen == (revocable ? copies : 0));
        client.check_clean();
    }
}

TEST_CASE("transfers: a write over a stripe uses its slots on each device") {
    Rig rig({.devices = "sss",
             .size = 16 * page,
             .stripe_size = page,
             .channels = {.chunk_size = chunk, .slots = 2, .pinned = 2048 * kib}});
    rig.map_all();
    ClientAccount account;
    CountingOwner owner;
    WriteTransfer write;
    write.begin({*rig.volume, *rig.channels, account}, owner, {0, 16 * page});
    CHECK(account.writes == 6 * chunk);
    for (const auto& device : rig.devices) {
        const StagingArena& arena = rig.channels->to(*device).write_staging();
        CHECK(arena.largest() - arena.free_bytes() == 2 * chunk);
    }
    write.abandon();
    rig.check_idle(*rig.channels);
}

TEST_CASE("transfers: a TRIM of many pages is spread over polls, and others are served meanwhile") {
    Rig rig({.devices = "s", .size = 100 * page});
    rig.map_all();
    ClientAccount account;
    CountingOwner owner;
    CountingOwner reader;
    ZeroTransfer zero;
    zero.begin({*rig.volume, *rig.channels, account}, owner, {1, 100 * page - 1}, {});
    CHECK_FALSE(zero.done());
    CHECK(rig.mapped(99));
    ReadTransfer read;
    read.begin({*rig.volume, *rig.channels, account}, reader, {99 * page, chunk});
    int polls = 0;
    for (; !zero.done(); ++polls) {
        CHECK(rig.channels->busy());
        rig.channels->poll();
    }
    CHECK(polls > 2);
    CHECK(owner.wake_ups >= 1);
    CHECK(reader.wake_ups == 1);
    CHECK_FALSE(rig.mapped(99));
    CHECK(rig.mapped(0));  // the TRIM covers all of it except the first byte
    read.abandon();
    rig.check_idle(*rig.channels);
}

// Requests of several clients at once, on different ranges of the same pages.
TEST_CASE("transfers: many concurrent requests complete with little staging memory") {
    for (const Setting& setting : settings) {
        if (!has_devices(setting.devices)) continue;
        for (std::uint32_t seed = 0; seed != 6; ++seed) {
            CAPTURE(setting.name);
            CAPTURE(seed);
            Rig rig(options_of(setting));
            rig.script.polls_per_copy = setting.polls_per_copy;
            Random random(seed);
            constexpr std::uint32_t clients = 4;
            std::vector<ClientAccount> accounts(clients);
            for (int round = 0; round != 20; ++round) {
                std::vector<std::unique_ptr<Job>> jobs;
                std::uint64_t at = random.below(chunk);
                while (at < rig.options.size) {
                    const std::uint64_t left = rig.options.size - at;
                    const std::uint32_t max = random.one_in(2) ? 5000 : page + chunk;
                    const auto length = static_cast<std::uint32_t>(
                        std::min<std::uint64_t>(left, 1 + random.below(max)));
                    ClientAccount& account = accounts[random.below(clients)];
                    switch (random.below(6)) {
                        case 0:
                            jobs.push_back(std::make_unique<ZeroJob>(rig, *rig.channels, account,
                                                                     at, length, random.one_in(2)));
                            break;
                        case 1:
                        case 2:
                            jobs.push_back(std::make_unique<WriteJob>(
                                rig, *rig.channels, account, at, length, random.below(1U << 30)));
                            break;
                        default:
                            jobs.push_back(
                                std::make_unique<ReadJob>(rig, *rig.channels, account, at, length));
                    }
                    at += length;
                }
                std::vector<Job*> all;
                all.reserve(jobs.size());
                for (const auto& job : jobs) all.push_back(job.get());
                if (random.one_in(3)) {
                    for (std::uint32_t steps = random.below(30); steps != 0; --steps) {
                        all[random.below(static_cast<std::uint32_t>(all.size()))]->step(random);
                        if (random.one_in(3)) rig.channels->poll();
                    }
                    for (Job* const job : all) {
                        if (random.one_in(3)) job->abandon();
                    }
                }
                rig.finish(all, random);
                for (const ClientAccount& account : accounts) {
                    REQUIRE(account.reads == 0);
                    REQUIRE(account.writes == 0);
                }
                // Later requests see what earlier ones wrote.
                ReadJob check(rig, *rig.channels, accounts[0], 0,
                              static_cast<std::uint32_t>(rig.options.size));
                REQUIRE(run(*rig.channels, {&check}, random));
                REQUIRE(check.status() == Status::ok);
                settle(*rig.channels);
            }
            rig.check_idle(*rig.channels);
            rig.check_pages();
        }
    }
}

// A client with simple replies: the first request with data owns the stream until it ends, while
// the data of others stay in place.
struct Connection {
    ClientAccount account;
    std::vector<std::unique_ptr<ReadJob>> queue;
    ReadJob* sending = nullptr;
    std::size_t total = 0;
};

TEST_CASE("transfers: clients with ordered replies do not deadlock") {
    constexpr std::uint32_t request = 8 * chunk;
    for (const std::uint32_t depth : {1U, 2U, 4U}) {
        for (const std::size_t pinned : {256 * kib, 1024 * kib}) {
            for (std::uint32_t seed = 0; seed != 20; ++seed) {
                CAPTURE(depth);
                CAPTURE(pinned);
                CAPTURE(seed);
                Rig rig({.devices = "s",
                         .size = 4 * request,
                         .channels = {.chunk_size = chunk, .slots = 2, .pinned = pinned}});
                Random random(seed);
                rig.map_all();
                std::vector<Connection> connections(8);
                constexpr std::size_t requests = 6;
                std::size_t left = connections.size() * requests;
                std::uint32_t idle = 0;
                // A round without progress while the channels are idle is a hang; some rounds are
                // idle by chance.
                while (left != 0) {
                    REQUIRE(++idle != 2000);
                    Connection& one =
                        connections[random.below(static_cast<std::uint32_t>(connections.size()))];
                    while (one.total != requests && one.queue.size() != depth && random.one_in(2)) {
                        one.queue.push_back(std::make_unique<ReadJob>(
                            rig, *rig.channels, one.account, random.below(4 * chunk), request));
                        ++one.total;
                        idle = 0;
                    }
                    for (std::uint32_t steps = random.below(6); steps != 0; --steps) {
                        for (const auto& job : one.queue) {
                            if (one.sending == nullptr && job->transfer().ready()) {
                                one.sending = job.get();
                            }
                        }
                        if (one.sending == nullptr) break;
                        if (one.sending->step(random)) idle = 0;
                        if (one.sending->ended()) {
                            REQUIRE(one.sending->status() == Status::ok);
                            std::erase_if(one.queue, [&](const auto& job) {
                                return job.get() == one.sending;
                            });
                            one.sending = nullptr;
                            --left;
                        }
                    }
                    if (random.one_in(2)) rig.channels->poll();
                }
                rig.check_settled();
            }
        }
    }
}

TEST_CASE("transfers: a request continues when another of its client frees staging memory") {
    // Each device has staging memory for one chunk, and the client holds one of another device.
    Rig rig({.devices = "ss",
             .stripe_size = page,
             .channels = {.chunk_size = chunk, .slots = 2, .pinned = chunk}});
    ClientAccount account;
    ClientAccount other;
    Random random(1);
    rig.map_all();
    ReadJob first(rig, *rig.channels, account, 0, chunk);
    ReadJob blocker(rig, *rig.channels, other, page, chunk);
    ReadJob waits(rig, *rig.channels, account, page, chunk);
    CHECK(account.reads != 0);
    REQUIRE(run(*rig.channels, {&blocker}, random));
    REQUIRE(run(*rig.channels, {&first}, random));
    rig.finish({&waits}, random);
    CHECK(account.reads == 0);
}

// The client disconnects after a part of a write. The following staging memory belongs to other
// requests and must not be written.
TEST_CASE("transfers: a write that ends early writes only the received bytes") {
    for (const std::uint32_t filled : {0U, 1U, 1000U, chunk - 1, chunk, chunk + 1}) {
        CAPTURE(filled);
        Rig rig({.devices = "s",
                 .size = 2 * page,
                 .channels = {.chunk_size = chunk, .slots = 2, .pinned = 2 * chunk}});
        SilentOwner owner;
        const auto write = [&](std::byte value, std::uint64_t offset, std::uint32_t bytes) {
            ClientAccount account;
            WriteTransfer transfer;
            transfer.begin({*rig.volume, *rig.channels, account}, owner, {offset, page});
            settle(*rig.channels);  // the page is being allocated
            const std::vector<std::byte> payload(page, value);
            for (std::size_t sent = 0; sent != bytes;) {
                sent += transfer.fill(std::span(payload).subspan(sent, bytes - sent));
                settle(*rig.channels);
            }
            transfer.end_here();
            settle(*rig.channels);
            CHECK(transfer.done());
            CHECK(transfer.status() == Status::ok);
            CHECK(account.writes == 0);
        };
        write(std::byte{1}, 0, page);
        write(std::byte{3}, page, page);  // by another client: leaves its bytes in both slots
        write(std::byte{2}, 0, filled);
        rig.check_idle(*rig.channels);
        const PageRef held = rig.volume->find(0);
        const auto* const at = reinterpret_cast<const std::byte*>(held.address());
        CHECK(std::count(at, at + filled, std::byte{2}) == filled);
        CHECK(std::count(at + filled, at + page, std::byte{1}) == page - filled);
    }
}

TEST_CASE("transfers: a request that ends while it waits for staging memory leaves the queue") {
    for (const bool is_abandoned : {false, true}) {
        CAPTURE(is_abandoned);
        Rig rig({.devices = "s",
                 .size = page,
                 .channels = {.chunk_size = chunk, .slots = 1, .pinned = chunk}});
        rig.map_all();
        const Channel& channel = rig.channels->to(*rig.devices[0]);
        SilentOwner owner;
        ClientAccount holder;
        ClientAccount account;
        WriteTransfer holds;
        WriteTransfer waits;
        holds.begin({*rig.volume, *rig.channels, holder}, owner, {0, chunk});
        waits.begin({*rig.volume, *rig.channels, account}, owner, {chunk, chunk});
        CHECK(channel.write_staging().waited_for());
        is_abandoned ? waits.abandon() : waits.end_here();
        CHECK(waits.done());
        CHECK_FALSE(channel.write_staging().waited_for());
        holds.abandon();
        ReadTransfer reads;
        ReadTransfer waits_to_read;
        reads.begin({*rig.volume, *rig.channels, holder}, owner, {0, chunk});
        waits_to_read.begin({*rig.volume, *rig.channels, account}, owner, {chunk, chunk});
        CHECK(channel.read_staging().waited_for());
        waits_to_read.abandon();
        CHECK(waits_to_read.idle());
        CHECK_FALSE(channel.read_staging().waited_for());
        reads.abandon();
        rig.check_settled();
    }
}

// The page that it waited for has become a hole, so it must leave the queue.
TEST_CASE("transfers: a request that waits for an unmapped page leaves the queue at its end") {
    for (const bool to_another_device : {false, true}) {
        Rig rig({.devices = "hss",
                 .size = 3 * page,
                 .stripe_size = page,
                 .capacity = 2 * page,
                 .channels = {.chunk_size = chunk, .slots = 2, .pinned = chunk}});
        ClientAccount account;
        ClientAccount other;
        Random random(1);
        rig.map_all();
        ReadJob holder(rig, *rig.channels, other, page, chunk);
        auto holder_there = std::make_unique<ReadJob>(rig, *rig.channels, other, 2 * page, chunk);
        {
            SilentOwner owner;
            ReadTransfer transfer;
            // A page in place, followed by one that has to wait.
            const std::uint32_t length = page + 100 + (to_another_device ? page : 0);
            transfer.begin({*rig.volume, *rig.channels, account}, owner, {0, length});
            ReadTransfer::Piece piece;
            REQUIRE(transfer.next(piece));
            CHECK_FALSE(transfer.next(piece));
            const auto is_waited_for = [&](std::size_t device) {
                return rig.channels->to(*rig.devices[device]).read_staging().waited_for();
            };
            CHECK(is_waited_for(1));
            rig.volume->unmap(1);
            transfer.give_back();  // finds a hole, and may wait for another arena
            CHECK_FALSE(is_waited_for(1));
            CHECK(is_waited_for(2) == to_another_device);
            REQUIRE(transfer.next(piece));
            CHECK(piece.data == nullptr);
            if (!to_another_device) {
                transfer.give_back();
                CHECK(transfer.all_taken());
                CHECK(transfer.idle());
            } else {
                CHECK_FALSE(transfer.next(piece));
                transfer.abandon();
                CHECK(transfer.idle());
            }
            CHECK_FALSE(is_waited_for(2));
        }
        rig.finish({&holder, holder_there.get()}, random);
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
