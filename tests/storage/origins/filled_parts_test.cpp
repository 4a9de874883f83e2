// Writes to parts of pages that are not in memory.
#include "storage/origins/origin_cache.hpp"

#include <bitset>

#include "tests/checked.hpp"
#include "tests/storage/origins/memory_origin.hpp"
#include "tests/storage/pages/crash_image.hpp"
#include "tests/storage/rig.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace filled_parts {
namespace {

using Writes = OriginCache::Writes;

constexpr std::uint64_t part = 64 * kib;
constexpr std::uint64_t page_size = 4 * part;
constexpr std::uint64_t pages = 8;
constexpr std::uint64_t size = pages * page_size - part / 2 - 3 * 512;
constexpr std::byte old_value{1};
constexpr std::byte new_value{2};

struct CacheRig {
    explicit CacheRig(Writes writes, std::string_view devices = "h", bool is_kept = false,
                      std::chrono::milliseconds max_age = std::chrono::hours(1))
        : rig({.devices = devices, .size = size, .page_size = page_size, .discards = false}) {
        std::ranges::fill(contents.now, old_value);
        rig.model = contents.now;
        KeepOptions keep;
        if (is_kept) {
            keep = {.name = "filled",
                    .instance = new_instance(),
                    .kept_parts = std::make_shared<FakeParts>()};
        }
        rig.volume =
            checked(Volume::create({.size = size, .page_size = page_size, .memory = 6 * page_size},
                                   {rig.devices.front().get()}, {}, keep));
        auto made = std::make_unique<OriginCache>(
            *rig.volume, std::make_unique<MemoryOrigin>(contents),
            OriginCache::Options{
                .export_name = "filled",
                .reserve = devices.size() == 1 ? nullptr : rig.devices.back().get(),
                .writes = writes,
                .max_unwritten = 1 << 20,
                .max_age = max_age});
        cache = made.get();
        rig.volume->set_source(std::move(made));
    }
    Parts missing(std::uint64_t page) const { return rig.volume->missing_parts(page); }
    std::uint64_t read_bytes() const { return cache->counters().read_bytes.value(); }
    Status flush() {
        FlushJob job(rig, *rig.channels, client.account);
        return client.finish(job);
    }

    OriginContents contents{size};
    Rig rig;
    Requests client{rig, Random(1)};
    OriginCache* cache = nullptr;
};

// A write with one value as payload, which comes as the test wants.
struct SlowWrite {
    SlowWrite(CacheRig& of, std::uint64_t offset, std::uint32_t length) : rig(of.rig) {
        transfer.begin({*rig.volume, *channels, account}, owner, {offset, length});
    }
    ~SlowWrite() { CHECK(transfer.done()); }
    void fill(std::size_t bytes, std::byte value = new_value) {
        const std::vector<std::byte> payload(bytes, value);
        for (std::size_t sent = 0; sent != bytes;) {
            sent += transfer.fill(std::span(payload).subspan(sent));
            settle(*channels);
        }
    }
    void end_here() {
        transfer.end_here();
        settle(*channels);
    }
    void abandon() {
        transfer.abandon();
        settle(*channels);
    }

    Rig& rig;
    std::unique_ptr<Channels> channels = rig.open_channels();
    SilentOwner owner;
    ClientAccount account;
    WriteTransfer transfer;
};

void for_each_kind(const auto& test, std::chrono::milliseconds max_age = std::chrono::hours(1)) {
    for (const std::string_view devices : {"h", "s"}) {
        for (const bool is_kept : {false, true}) {
            for (const Writes writes : {Writes::through, Writes::back}) {
                CAPTURE(devices);
                CAPTURE(is_kept);
                CAPTURE(static_cast<int>(writes));
                CacheRig cache(writes, devices, is_kept, max_age);
                test(cache);
            }
        }
    }
}

TEST_CASE("origin: a write reads only the parts that it changes in part") {
    for_each_kind([](CacheRig& cache) {
        // Of an absent page.
        CHECK(cache.client.write(part, 2 * part) == Status::ok);
        CHECK(cache.missing(0) == 0b1001);
        CHECK(cache.read_bytes() == 0);
        // Of one that is there.
        CHECK(cache.client.write(0, part) == Status::ok);
        CHECK(cache.missing(0) == 0b1000);
        CHECK(cache.read_bytes() == 0);
        // From within a part to within a part, over the end of a page.
        CHECK(cache.client.write(page_size + part + 100, page_size) == Status::ok);
        CHECK(cache.missing(1) == 0b0001);
        CHECK(cache.missing(2) == 0b1100);
        CHECK(cache.read_bytes() == 2 * part);
        // The last part ends with the volume.
        CHECK(cache.client.write(7 * page_size + 2 * part, size % page_size - 2 * part) ==
              Status::ok);
        CHECK(cache.missing(7) == 0b0011);
        CHECK(cache.read_bytes() == 2 * part);
        CHECK(cache.client.read_all() == Status::ok);
        CHECK(cache.flush() == Status::ok);
        CHECK(cache.contents.holds(cache.contents.durable, cache.rig.model, cache.rig.known));
    });
}

TEST_CASE("origin: a part has no contents until the write that fills it has succeeded") {
    for_each_kind([](CacheRig& cache) {
        Rig& rig = cache.rig;
        ClientAccount account;
        SlowWrite write(cache, part, 2 * part);
        write.fill(part + 1000);
        CHECK(cache.missing(0) == 0b1111);
        // Other parts are read meanwhile, and these parts are not fetched.
        CHECK(cache.client.read(0, part) == Status::ok);
        cache.cache->prefetch(0, page_size);
        while (cache.missing(0) != 0b0110) std::this_thread::yield();
        CHECK(cache.read_bytes() == 2 * part);
        // A reader of one waits.
        ReadJob read(rig, *rig.channels, account, part, 2 * part);
        for (int i = 0; i != 100; ++i) {
            read.step(cache.client.random);
            rig.channels->poll();
        }
        CHECK_FALSE(read.ended());
        SUBCASE("the client sends all of it") {
            std::fill_n(rig.model.begin() + part, 2 * part, new_value);
            write.fill(part - 1000);
            CHECK(write.transfer.status() == Status::ok);
            rig.finish({&read}, cache.client.random);
            CHECK(cache.read_bytes() == 2 * part);
        }
        SUBCASE("the client disconnects") {
            write.abandon();
            rig.finish({&read}, cache.client.random);
            CHECK(cache.read_bytes() == 4 * part);
        }
        CHECK(read.status() == Status::ok);
        CHECK(cache.missing(0) == 0);
        CHECK(cache.flush() == Status::ok);
        CHECK(cache.contents.holds(cache.contents.now, rig.model, rig.known));
    });
}

TEST_CASE("origin: a write to parts that another one fills waits for that") {
    for (const bool is_abandoned : {false, true}) {
        for_each_kind([&](CacheRig& cache) {
            SlowWrite first(cache, 0, 2 * part);
            first.fill(5000);
            WriteJob second(cache.rig, *cache.rig.channels, cache.client.account, part, 2 * part,
                            9);
            for (int i = 0; i != 100; ++i) {
                second.step(cache.client.random);
                cache.rig.channels->poll();
            }
            CHECK_FALSE(second.ended());
            is_abandoned ? first.abandon() : first.fill(2 * part - 5000);
            if (!is_abandoned) std::fill_n(cache.rig.model.begin(), part, new_value);
            CHECK(cache.client.finish(second) == Status::ok);
            CHECK(cache.read_bytes() == 0);
            CHECK(cache.client.read_all() == Status::ok);
        });
    }
}

TEST_CASE("origin: a write to parts that are being fetched waits for that") {
    for_each_kind([](CacheRig& cache) {
        CHECK(cache.client.read(3 * page_size, 1) == Status::ok);
        cache.contents.allowed_reads = cache.contents.reads.load();
        cache.cache->prefetch(3 * page_size, page_size);
        while (cache.contents.reads == cache.contents.allowed_reads) std::this_thread::yield();
        WriteJob write(cache.rig, *cache.rig.channels, cache.client.account, 3 * page_size + part,
                       part, 9);
        for (int i = 0; i != 100; ++i) {
            write.step(cache.client.random);
            cache.rig.channels->poll();
        }
        CHECK_FALSE(write.ended());
        cache.contents.allowed_reads = ~0U;
        CHECK(cache.client.finish(write) == Status::ok);
        CHECK(cache.client.read(3 * page_size, page_size) == Status::ok);
    });
}

TEST_CASE("origin: a page that is zeroed during a write has nothing of what was in its memory") {
    for_each_kind([](CacheRig& cache) {
        for (std::uint64_t page = 7; page != 0; --page) {  // there is something in the memory
            CHECK(cache.client.read((page - 1) * page_size, page_size) == Status::ok);
        }
        CHECK(cache.client.zero(6 * page_size, page_size, false) == Status::ok);
        SlowWrite write(cache, 6 * page_size, 3 * part);
        write.fill(part + 5000);
        CHECK(cache.client.zero(6 * page_size, page_size, false) == Status::ok);
        CHECK(cache.client.read(6 * page_size, page_size) == Status::ok);
        write.fill(2 * part - 5000);
        CHECK(write.transfer.status() == Status::ok);
        cache.rig.set_known(6 * page_size, 3 * part, false);
        CHECK(cache.client.read(6 * page_size, page_size) == Status::ok);
        ReadTransfer read;
        SilentOwner owner;
        read.begin({*cache.rig.volume, *cache.rig.channels, cache.client.account}, owner,
                   {6 * page_size, page_size});
        settle(*cache.rig.channels);
        for (ReadTransfer::Piece piece; read.next(piece);) {
            const bool is_right =
                piece.data == nullptr ||
                std::all_of(piece.data, piece.data + piece.length, [](std::byte each) {
                    return each == std::byte{} || each == new_value;
                });
            CHECK(is_right);
            read.give_back();
            settle(*cache.rig.channels);
        }
        CHECK(read.status() == Status::ok);
    });
}

// As before an upgrade: another process receives the rest.
TEST_CASE("origin: where payload is cut within a part, the rest of the part is read") {
    for (const std::uint32_t sent :
         {std::uint32_t{part} - 1, std::uint32_t{part}, std::uint32_t{part} + 1,
          std::uint32_t{part} + 4096, std::uint32_t{2 * part} + 8191}) {
        for_each_kind([&](CacheRig& cache) {
            CAPTURE(sent);
            SlowWrite write(cache, part, 3 * part);
            write.fill(sent);
            if (sent % part != 0) {
                SUBCASE("it cannot be read") {
                    cache.contents.fails_reads = true;
                    write.end_here();
                    CHECK(write.transfer.status() == Status::io_error);
                    cache.contents.fails_reads = false;
                    CHECK(cache.missing(0) == 0b1111);
                    CHECK(cache.client.read_all() == Status::ok);
                    return;
                }
            }
            write.end_here();
            REQUIRE(write.transfer.done());
            CHECK(write.transfer.status() == Status::ok);
            std::fill_n(cache.rig.model.begin() + part, sent, new_value);
            const std::uint64_t filled = (sent + part - 1) / part;
            CHECK(cache.missing(0) == (0b1111 & ~PageDivision::run(1, filled)));
            CHECK(cache.client.read(0, page_size) == Status::ok);
            CHECK(cache.client.write(part + sent, std::uint32_t{3 * part} - sent) == Status::ok);
            CHECK(cache.client.read_all() == Status::ok);
            CHECK(cache.flush() == Status::ok);
            CHECK(cache.contents.holds(cache.contents.durable, cache.rig.model, cache.rig.known));
        });
    }
}

TEST_CASE("origin: a write that is given up while it waits for a fetch ends if the device fails") {
    CacheRig cache(Writes::through, "sh");
    Rig& rig = cache.rig;
    const std::uint64_t begin = 3 * page_size;
    CHECK(cache.client.read(begin, 1) == Status::ok);
    cache.contents.allowed_reads = cache.contents.reads.load();
    cache.cache->prefetch(begin, page_size);
    while (cache.contents.reads == cache.contents.allowed_reads) std::this_thread::yield();
    SlowWrite waiting(cache, begin + part, part);
    waiting.transfer.abandon();
    CHECK_FALSE(waiting.transfer.done());
    rig.script.copies_until_dead = 0;
    ClientAccount account;
    ReadJob read(rig, *rig.channels, account, begin, 1);
    while (!rig.devices.front()->failed()) rig.channels->poll();
    WriteJob write(rig, *rig.channels, cache.client.account, begin, 100, 9);
    cache.contents.allowed_reads = ~0U;
    rig.finish({&read, &write}, cache.client.random);
    settle(*waiting.channels);
    CHECK(read.status() == Status::ok);
    CHECK(write.status() == Status::ok);
    CHECK(cache.client.read(begin, page_size) == Status::ok);
}

// Its writer has taken another page before the cut write begins, which a kept volume never does.
TEST_CASE("origin: the rest of a part is not read over a page that another write has replaced") {
    for (const std::string_view devices : {"h", "s"}) {
        CAPTURE(devices);
        CacheRig cache(Writes::back, devices);
        SlowWrite whole(cache, 0, page_size);
        whole.fill(1);
        SlowWrite cut(cache, part, 2 * part);
        cut.fill(part / 2, std::byte{3});
        whole.fill(page_size - 1);
        REQUIRE(whole.transfer.status() == Status::ok);
        REQUIRE(cache.missing(0) == 0);
        cut.end_here();
        REQUIRE(cut.transfer.done());
        CHECK(cut.transfer.status() == Status::ok);
        std::fill_n(cache.rig.model.begin(), page_size, new_value);
        cache.rig.set_known(part, part / 2, false);
        CHECK(cache.client.read_all() == Status::ok);
        CHECK(cache.flush() == Status::ok);
        CHECK(cache.contents.holds(cache.contents.durable, cache.rig.model, cache.rig.known));
    }
}

// --- a model ---------------------------------------------------------------------------------

constexpr std::uint64_t block = 512;
constexpr std::uint64_t blocks = size / block;

// The values that the bytes of each block may have.
using Values = std::bitset<256>;

// What is in progress, and what the blocks may have.
struct Model {
    std::vector<Values> values = std::vector<Values>(blocks);
    std::vector<Values> next = values;  // of requests in progress
    // After a zero that has failed, the memory and the origin may differ.
    std::vector<bool> may_change = std::vector<bool>(blocks);

    bool allows(std::uint64_t offset, std::byte value) const {
        const auto number = std::to_integer<std::size_t>(value);
        return values[offset / block].test(number) || next[offset / block].test(number);
    }
};

class Change : public Job {
 public:
    Change(std::uint64_t begin, std::uint64_t end, std::byte value)
        : begin_(begin), end_(end), value_(value) {}
    std::uint64_t begin() const { return begin_; }
    std::uint64_t end_block() const { return end_; }
    std::byte value() const { return value_; }
    bool covers(std::uint64_t number) const { return begin_ <= number && number < end_; }

 protected:
    Range range() const { return {begin_ * block, (end_ - begin_) * block}; }

 private:
    const std::uint64_t begin_;  // blocks
    const std::uint64_t end_;
    const std::byte value_;
};

// Its payload is sometimes cut, as in an upgrade.
class ModelWrite final : public Change {
 public:
    ModelWrite(CacheRig& cache, ClientAccount& account, std::uint64_t begin, std::uint64_t end,
               std::byte value)
        : Change(begin, end, value), context_{*cache.rig.volume, *cache.rig.channels, account} {
        transfer_.begin(context_, *this, range());
    }
    bool step(Random& random) override {
        if (ended()) return false;
        if (transfer_.done()) {
            if (!is_cut_ || transfer_.status() != Status::ok) {
                end(transfer_.status());
                return true;
            }
            is_cut_ = false;
            const Range all = range();
            transfer_.begin(context_, *this, {all.offset + sent_, all.length - sent_});
            return true;
        }
        if (is_cut_ || is_abandoned_) return false;
        if (transfer_.status() != Status::ok) {
            abandon();
            return true;
        }
        iovec lent{};
        if (transfer_.lend({&lent, 1}) == 0) {
            if (random.one_in(30)) cut();  // it waits for its page
            return is_cut_;
        }
        const auto room = static_cast<std::uint32_t>(lent.iov_len);
        const std::uint32_t bytes = random.one_in(2) ? room : 1 + random.below(room);
        std::memset(lent.iov_base, std::to_integer<int>(value()), bytes);
        transfer_.filled(bytes);
        sent_ += bytes;
        if (random.one_in(6)) cut();
        return true;
    }
    void abandon() override {
        if (ended() || is_abandoned_) return;
        is_abandoned_ = true;
        is_cut_ = false;
        transfer_.abandon();
    }

 private:
    void cut() {
        if (sent_ == range().length) return;
        is_cut_ = true;
        transfer_.end_here();
    }

    const TransferContext context_;
    WriteTransfer transfer_;
    std::uint64_t sent_ = 0;
    bool is_cut_ = false;
    bool is_abandoned_ = false;
};

class ModelZero final : public TransferJob<ZeroTransfer, Change> {
 public:
    ModelZero(CacheRig& cache, ClientAccount& account, std::uint64_t begin, std::uint64_t end)
        : TransferJob(begin, end, std::byte{}) {
        transfer_.begin({*cache.rig.volume, *cache.rig.channels, account}, *this, range(), {});
    }
};

class ModelRead final : public Job {
 public:
    ModelRead(CacheRig& cache, ClientAccount& account, std::uint64_t begin, std::uint64_t end,
              const Model& model)
        : model_(model), seen_(end - begin), begin_(begin) {
        transfer_.begin({*cache.rig.volume, *cache.rig.channels, account}, *this,
                        {begin * block, (end - begin) * block});
    }
    bool step(Random&) override {
        if (ended()) return false;
        if (transfer_.status() != Status::ok) abandon();
        if (is_abandoned_ ? transfer_.idle() : transfer_.all_taken()) {
            end(transfer_.status());
            return true;
        }
        ReadTransfer::Piece piece;
        if (is_abandoned_ || !transfer_.next(piece)) return false;
        std::uint64_t wrong = 0;
        for (std::uint64_t i = 0; i != piece.length; ++i) {
            const std::byte value = piece.data == nullptr ? std::byte{} : piece.data[i];
            if (!model_.allows(piece.offset + i, value)) ++wrong;
            seen_[(piece.offset + i) / block - begin_].set(std::to_integer<std::size_t>(value));
        }
        CHECK(wrong == 0);
        transfer_.give_back();
        return true;
    }
    void abandon() override {
        if (!is_abandoned_ && !ended()) transfer_.abandon();
        is_abandoned_ = true;
    }
    const std::vector<Values>& seen() const { return seen_; }

 private:
    const Model& model_;
    std::vector<Values> seen_;  // of each block
    const std::uint64_t begin_;
    ReadTransfer transfer_;
    bool is_abandoned_ = false;
};

// Requests of several clients to the same parts at once, with failures, cut payload, drops and
// requests to read ahead.
struct ModelRun {
    ModelRun(CacheRig& of, std::uint32_t seed) : cache(of), random(seed) {
        for (Values& each : model.values) each.set(std::to_integer<std::size_t>(old_value));
    }

    void round() {
        OriginContents& contents = cache.contents;
        contents.fails_reads = random.one_in(10);
        contents.fails_writes = random.one_in(10);
        contents.can_zero = random.one_in(2);
        std::vector<ClientAccount> accounts(5);
        std::vector<std::unique_ptr<Job>> owned;
        std::vector<const Change*> changes;
        // They meet around one place.
        const std::uint64_t first = random.below(std::uint32_t{blocks - 1});
        const auto place = [&] {
            std::uint64_t at = first - std::min<std::uint64_t>(first, random.below(3 * 128));
            if (random.one_in(2)) at -= at % (part / block);
            return at;
        };
        for (ClientAccount& account : accounts) {
            const std::uint64_t begin = place();
            std::uint64_t end = begin + 1 + random.below(7 * 128);
            if (random.one_in(2)) end += 128 - end % 128;
            end = std::min(end, blocks);
            const std::uint32_t kind = random.below(8);
            if (kind < 2) {
                owned.push_back(std::make_unique<ModelRead>(cache, account, begin, end, model));
                continue;
            }
            const auto value = static_cast<std::byte>(kind == 2 ? 0 : random.between(3, 255));
            for (std::uint64_t i = begin; i != end; ++i) {
                model.next[i].set(std::to_integer<std::size_t>(value));
            }
            std::unique_ptr<Change> change;
            if (kind == 2) {
                change = std::make_unique<ModelZero>(cache, account, begin, end);
            } else {
                change = std::make_unique<ModelWrite>(cache, account, begin, end, value);
            }
            changes.push_back(change.get());
            owned.push_back(std::move(change));
        }
        for (std::uint32_t steps = random.below(60); steps != 0; --steps) {
            owned[random.below(5)]->step(random);
            cache.rig.channels->poll();
            if (random.one_in(8)) cache.cache->drop(random.below(pages));
            if (random.one_in(8)) cache.cache->evict(1);
            if (random.one_in(8)) cache.cache->prefetch(first * block, 2 * part);
        }
        if (random.one_in(2)) owned[random.below(5)]->abandon();
        std::vector<Job*> jobs;
        for (const auto& each : owned) jobs.push_back(each.get());
        cache.rig.finish(jobs, random);
        contents.fails_reads = contents.fails_writes = false;
        for (std::uint64_t i = 0; i != blocks; ++i) {
            bool is_replaced = false;
            bool has_failed_zero = false;
            for (const Change* const each : changes) {
                if (!each->covers(i)) continue;
                is_replaced |= each->status() == Status::ok;
                has_failed_zero |= each->status() != Status::ok && each->value() == std::byte{};
            }
            if (is_replaced || has_failed_zero) model.may_change[i] = has_failed_zero;
            if (!is_replaced) model.next[i] |= model.values[i];
            model.values[i] = std::exchange(model.next[i], Values{});
        }
    }
    // What is read now stays.
    void read_all() {
        ClientAccount account;
        ModelRead read(cache, account, 0, blocks, model);
        cache.rig.finish({&read}, random);
        CHECK(read.status() == Status::ok);
        for (std::uint64_t i = 0; i != blocks; ++i) {
            if (!model.may_change[i]) model.values[i] = read.seen()[i];
        }
    }
    // The origin has what is read.
    void flush() {
        CHECK(cache.flush() == Status::ok);
        read_all();
        const std::lock_guard lock(cache.contents.mutex);
        std::uint64_t wrong = 0;
        for (std::uint64_t at = 0; at != size; ++at) {
            if (!model.allows(at, cache.contents.durable[at])) ++wrong;
        }
        CHECK(wrong == 0);
    }

    CacheRig& cache;
    Random random;
    Model model;
};

TEST_CASE("origin: several clients write to the same parts at once") {
    std::uint32_t seed = 0;
    const auto test = [&](CacheRig& cache) {
        ModelRun run(cache, ++seed);
        for (int round = 0; round != 40; ++round) {
            run.round();
            if (run.random.one_in(4)) run.read_all();
            if (run.random.one_in(4)) run.flush();
        }
        run.flush();
    };
    for_each_kind(test, std::chrono::milliseconds(2));
}

}  // namespace
}  // namespace filled_parts
}  // namespace gpunbd::storage::test
