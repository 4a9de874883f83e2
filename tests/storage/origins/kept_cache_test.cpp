// Caches that another process takes over: after a kill at any step, or from one that is paused.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "storage/origins/origin_cache.hpp"
#include "storage/origins/origin_clone.hpp"
#include "tests/checked.hpp"
#include "tests/sanitized.hpp"
#include "tests/storage/origins/memory_origin.hpp"
#include "tests/storage/pages/crash_image.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/rig.hpp"
#include "tests/storage/sizes.hpp"

namespace gpunbd::storage::test::kept_cache {
namespace {

constexpr std::uint64_t page_size = 256 * kib;  // 4 parts
constexpr std::uint64_t pages = 12;
constexpr std::uint64_t size = pages * page_size - 5 * 512;
constexpr std::uint64_t memory = 6 * page_size;

VolumeOptions cached_volume() { return {.size = size, .page_size = page_size, .memory = memory}; }

std::unique_ptr<Volume> make_kept(Rig& rig, std::shared_ptr<KeptParts> parts) {
    return checked(Volume::create(
        cached_volume(), {rig.devices.front().get()}, {},
        {.name = "cached", .instance = new_instance(), .kept_parts = std::move(parts)}));
}

std::unique_ptr<Volume> take_over(Rig& rig, const OwnedFd& table, Volume::Descriptors slabs,
                                  std::shared_ptr<KeptParts> parts, bool quiesced = false) {
    return checked(Volume::take_over(checked(PageTable::open(OwnedFd::copy_of(table))),
                                     {rig.devices.front().get()}, std::move(slabs),
                                     std::move(parts), quiesced));
}

RigOptions rig_options(std::string_view devices) {
    return {.devices = devices, .size = size, .page_size = page_size, .discards = false};
}

// --- kills -----------------------------------------------------------------------------------

// What outlives a process that is killed, besides the descriptors.
struct Survivor {
    std::array<std::byte, size> origin;
    std::array<std::byte, size> model;  // after the last request that was answered
    std::array<std::byte, size> next;   // after the one in progress, between begin and end
    std::atomic<std::uint64_t> begin;
    std::atomic<std::uint64_t> end;
    std::atomic<std::uint64_t> steps;
    std::uint64_t kill_at;
    std::uint32_t seed;
};

void step(Survivor& all) {
    if (++all.steps == all.kill_at) ::kill(::getpid(), SIGKILL);
}

class SurvivingOrigin final : public Origin {
 public:
    explicit SurvivingOrigin(Survivor& all) : all_(all) {}

    const std::string& name() const override { return name_; }
    std::uint64_t size() const override { return all_.origin.size(); }
    std::optional<Extent> next_data(std::uint64_t offset) const override {
        return offset < size() ? std::optional(Extent{offset, size()}) : std::nullopt;
    }
    Error do_read(std::uint64_t offset, std::span<std::byte> to) override {
        std::memcpy(to.data(), all_.origin.data() + offset, to.size());
        step(all_);
        return {};
    }
    Error do_write(std::uint64_t offset, std::span<const std::byte> from) override {
        step(all_);
        const std::size_t half = from.size() / 2;
        std::memcpy(all_.origin.data() + offset, from.data(), half);
        std::this_thread::sleep_for(std::chrono::microseconds(50));  // the client writes meanwhile
        step(all_);
        std::memcpy(all_.origin.data() + offset + half, from.data() + half, from.size() - half);
        step(all_);
        return {};
    }
    Error do_zero(std::uint64_t offset, std::uint64_t length, bool /*keeps_space*/) override {
        step(all_);
        std::memset(all_.origin.data() + offset, 0, length);
        step(all_);
        return {};
    }
    bool can_zero() const override { return true; }
    Error do_flush() override {
        step(all_);
        return {};
    }
    bool may_have_lost_writes() const override { return true; }
    SourceId id() const override { return {1, 2}; }

 private:
    const std::string name_ = "surviving";
    Survivor& all_;
};

struct PartMessage {
    enum class Kind : std::uint8_t { table, slab, dropped };
    Kind kind = Kind::table;
    std::uint32_t slab = 0;
};

// Sends kept parts to the process that will start the next one.
class SentParts final : public KeptParts {
 public:
    SentParts(int socket, Survivor& all) : socket_(socket), all_(all) {}

    bool keep_table(const OwnedFd& table) noexcept override {
        return send({.kind = PartMessage::Kind::table}, table.get());
    }
    bool keep_directory(const OwnedFd&) noexcept override { return false; }
    bool keep(std::uint32_t, std::uint32_t slab, const OwnedFd& descriptor) noexcept override {
        return send({.kind = PartMessage::Kind::slab, .slab = slab}, descriptor.get());
    }
    void drop(std::uint32_t, std::uint32_t slab) noexcept override {
        send({.kind = PartMessage::Kind::dropped, .slab = slab}, -1);
    }
    bool keeps() const noexcept override { return true; }

 private:
    bool send(PartMessage part, int descriptor) noexcept {
        step(all_);
        iovec body{.iov_base = &part, .iov_len = sizeof part};
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof descriptor)> control{};
        msghdr message{};
        message.msg_iov = &body;
        message.msg_iovlen = 1;
        if (descriptor >= 0) {
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            cmsghdr* const head = CMSG_FIRSTHDR(&message);
            head->cmsg_level = SOL_SOCKET;
            head->cmsg_type = SCM_RIGHTS;
            head->cmsg_len = CMSG_LEN(sizeof descriptor);
            std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
        }
        const bool is_sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL) == sizeof part;
        step(all_);
        return is_sent;
    }

    const int socket_;
    Survivor& all_;
};

// The parts that killed processes have left.
struct LeftParts {
    OwnedFd table;
    std::map<std::uint32_t, OwnedFd> slabs;

    void receive_all(int socket) {
        while (true) {
            PartMessage part;
            iovec body{.iov_base = &part, .iov_len = sizeof part};
            alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
            msghdr message{};
            message.msg_iov = &body;
            message.msg_iovlen = 1;
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            if (::recvmsg(socket, &message, MSG_DONTWAIT) <= 0) return;
            int descriptor = -1;
            if (const cmsghdr* const head = CMSG_FIRSTHDR(&message)) {
                std::memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
            }
            if (part.kind == PartMessage::Kind::table) {
                table = OwnedFd(descriptor);
            } else if (part.kind == PartMessage::Kind::slab) {
                slabs.insert_or_assign(part.slab, OwnedFd(descriptor));
            } else {
                slabs.erase(part.slab);
            }
        }
    }
    Volume::Descriptors copies() const {
        Volume::Descriptors all;
        for (const auto& [slab, descriptor] : slabs) {
            all[0].emplace(slab, OwnedFd::copy_of(descriptor));
        }
        return all;
    }
};

// Each exit code says what is wrong.
enum Outcome : int { correct = 0, request_failed = 2, byte_lost = 3, read_wrong = 4 };

void check(bool is_true, Outcome wrong) {
    if (!is_true) ::_exit(wrong);
}

// In a process of its own: takes over what there is, compares it with the model, and serves one
// client, until it is killed or has made all requests.
[[noreturn]] void serve(Survivor& all, const LeftParts& left, int socket) {
    {
        Rig rig(rig_options(all.seed % 2 == 0 ? "h" : "s"));
        auto parts = std::make_shared<SentParts>(socket, all);
        rig.volume =
            left.table ? take_over(rig, left.table, left.copies(), parts) : make_kept(rig, parts);
        rig.volume->set_source(std::make_unique<OriginCache>(
            *rig.volume, std::make_unique<SurvivingOrigin>(all),
            OriginCache::Options{.export_name = "cached",
                                 .writes = OriginCache::Writes::back,
                                 .max_unwritten = 512 * kib,
                                 .max_age = std::chrono::milliseconds(1)}));
        Requests client{rig, Random(all.seed)};
        const auto flush = [&] {
            FlushJob job(rig, *rig.channels, client.account);
            check(client.finish(job) == Status::ok, request_failed);
        };
        flush();
        for (std::uint64_t at = 0; at != size; ++at) {
            const bool may_be_new = at >= all.begin && at < all.end;
            const std::byte found = all.origin[at];
            check(found == all.model[at] || (may_be_new && found == all.next[at]), byte_lost);
        }
        all.begin = all.end = 0;
        all.model = all.origin;
        rig.model.assign(all.model.begin(), all.model.end());
        const auto reads_right = [&] {
            ReadJob job(rig, *rig.channels, client.account, 0, size);
            return client.finish(job) == Status::ok;
        };
        check(reads_right(), request_failed);
        Random& random = client.random;
        for (int i = 0; i != 40; ++i) {
            std::uint64_t at = random.below(size - 1);
            if (random.one_in(3)) at -= at % page_size;
            auto length = 1 + random.below(static_cast<std::uint32_t>(
                                  std::min<std::uint64_t>(size - at, 2 * page_size)));
            if (random.one_in(3)) length = std::min<std::uint32_t>(length, 4096);
            if (random.one_in(2)) {  // in the same part again, which is being written
                at %= 64 * kib;
                length = std::min<std::uint32_t>(length, 4096);
            }
            const bool zeroes = random.one_in(6);
            std::unique_ptr<Job> job;
            const auto begin = [&](const auto& byte_at) {
                for (std::uint64_t byte = 0; byte != length; ++byte) {
                    all.next[at + byte] = byte_at(byte);
                }
                all.end = at + length;
                all.begin = at;
            };
            if (zeroes) {
                begin([](std::uint64_t) { return std::byte{}; });
                job = std::make_unique<ZeroJob>(rig, *rig.channels, client.account, at, length,
                                                random.one_in(2));
            } else {
                auto write =
                    std::make_unique<WriteJob>(rig, *rig.channels, client.account, at, length,
                                               random.below(1 << 30), random.one_in(8));
                begin([&](std::uint64_t byte) { return write->payload()[byte]; });
                job = std::move(write);
            }
            for (std::uint32_t steps = random.below(4); steps != 0;
                 --steps) {  // within the payload
                job->step(random);
                rig.channels->poll();
                step(all);
            }
            check(client.finish(*job) == Status::ok, request_failed);
            std::copy_n(all.next.begin() + static_cast<std::ptrdiff_t>(at), length,
                        all.model.begin() + static_cast<std::ptrdiff_t>(at));
            all.end = 0;
            step(all);
            if (random.one_in(10)) flush();
            if (random.one_in(10)) rig.volume->cache()->evict(2);
        }
        check(reads_right(), request_failed);
    }
    // The end of the volume has written everything.
    check(all.origin == all.model, byte_lost);
    ::_exit(correct);
}

// Forks processes that serve until they are killed at a random step, except for the last one.
using Serve = void (*)(Survivor& all, const LeftParts& left, int socket);
void kill_at_any_step(Serve serving, std::uint32_t longest) {
    void* const shared = ::mmap(nullptr, sizeof(Survivor), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    auto* const all = new (shared) Survivor{};
    Random random(5);
    for (std::size_t at = 0; at != size; ++at) {
        all->origin[at] = all->model[at] = static_cast<std::byte>(random.below(256));
    }
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    const OwnedFd ours(ends[0]);
    const OwnedFd theirs(ends[1]);
    LeftParts left;
    int killed = 0;
    const int processes = gpunbd::test::is_sanitized ? 30 : 150;
    for (int i = 0; i != processes; ++i) {
        all->steps = 0;
        // The last one is not killed.
        all->kill_at = i + 1 == processes ? 0 : 1 + random.below(random.one_in(2) ? 12 : longest);
        all->seed = random.below(1 << 30);
        std::fflush(nullptr);
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            try {
                serving(*all, left, theirs.get());
            } catch (...) {  // a REQUIRE
                ::_exit(request_failed);
            }
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        left.receive_all(ours.get());
        CAPTURE(i);
        CAPTURE(all->seed);
        CAPTURE(all->kill_at);
        const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        killed += is_killed ? 1 : 0;
        if (is_killed) continue;
        REQUIRE(WIFEXITED(status));
        REQUIRE(WEXITSTATUS(status) == correct);
        // A volume that was destroyed in order leaves its parts too.
    }
    CHECK(killed > processes / 2);
    ::munmap(shared, sizeof(Survivor));
}

TEST_CASE("kept cache: killed at any step, it has all that was answered") {
    kill_at_any_step(serve, 240);
}

// Calls step() at each of its own.
class SteppingJob final : public Job {
 public:
    SteppingJob(Job& job, Survivor& all) : job_(job), all_(all) {}
    bool step(Random& random) override {
        const bool has_moved = job_.step(random);
        kept_cache::step(all_);
        if (job_.ended() && !ended()) end(job_.status());
        return has_moved;
    }
    void abandon() override { job_.abandon(); }

 private:
    Job& job_;
    Survivor& all_;
};

// The same for a clone of a cache that is not kept. Nothing writes to the origin.
[[noreturn]] void serve_clone(Survivor& all, const LeftParts& left, int socket) {
    {
        Rig rig(rig_options("h"));
        const std::shared_ptr<Volume> base =
            checked(Volume::create(cached_volume(), {rig.devices.front().get()}));
        base->set_source(std::make_unique<OriginCache>(
            *base, std::make_unique<SurvivingOrigin>(all), OriginCache::Options{}));
        auto parts = std::make_shared<SentParts>(socket, all);
        const auto table =
            left.table ? std::optional(checked(PageTable::open(OwnedFd::copy_of(left.table))))
                       : std::nullopt;
        if (table && table->complete()) {
            rig.volume = take_over(rig, left.table, left.copies(), parts);
            check(!OriginClone::continue_with(*rig.volume, base), request_failed);
        } else {
            rig.volume = checked(OriginClone::make(
                base, {.name = "clone", .instance = new_instance(), .kept_parts = parts}, {}));
        }
        Requests client{rig, Random(all.seed)};
        rig.model.assign(all.model.begin(), all.model.end());
        rig.set_known(0, size, true);
        if (all.begin < all.end) rig.set_known(all.begin, all.end - all.begin, false);
        check(client.read_all() == Status::ok, request_failed);
        // Of the request that was interrupted, each byte is the old or the new one.
        for (std::uint64_t at = all.begin; at < all.end;) {
            check(client.read(at, 1) == Status::ok, request_failed);
            const std::uint64_t page = at / page_size;
            const std::uint64_t end = std::min(all.end.load(), (page + 1) * page_size);
            const std::uint64_t part = std::min(end - at, 64 * kib - at % (64 * kib));
            const PageRef found = rig.volume->find_at(at, part);
            if (found.hole() && rig.volume->has_contents(page)) continue;  // it was evicted
            for (const std::uint64_t up_to = at + part; at != up_to; ++at) {
                const std::byte byte = found.hole() ? std::byte{} : found.cpu()[at % page_size];
                check(byte == all.model[at] || byte == all.next[at], byte_lost);
                all.model[at] = rig.model[at] = byte;
            }
        }
        rig.set_known(0, size, true);
        all.begin = all.end = 0;
        Random& random = client.random;
        for (int i = 0; i != 40; ++i) {
            std::uint64_t at = random.below(size - 1);
            if (random.one_in(2)) at -= at % page_size;
            const auto longest = std::min<std::uint64_t>(size - at, 2 * page_size);
            auto length = 1 + random.below(static_cast<std::uint32_t>(longest));
            if (random.one_in(2)) {
                length = static_cast<std::uint32_t>(std::min(page_size, longest));
            }
            std::unique_ptr<Job> job;
            std::vector<std::byte> bytes(length);
            if (random.one_in(3)) {
                job = std::make_unique<ZeroJob>(rig, *rig.channels, client.account, at, length,
                                                random.one_in(2));
            } else {
                auto write = std::make_unique<WriteJob>(rig, *rig.channels, client.account, at,
                                                        length, random.below(1 << 30));
                bytes = write->payload();
                job = std::move(write);
            }
            const auto where = static_cast<std::ptrdiff_t>(at);
            std::ranges::copy(bytes, all.next.begin() + where);
            all.end = at + length;
            all.begin = at;
            SteppingJob stepping(*job, all);
            check(client.finish(stepping) == Status::ok, request_failed);
            std::ranges::copy(bytes, all.model.begin() + where);
            all.end = 0;
            if (random.one_in(4)) check(client.read_all() == Status::ok, request_failed);
        }
        check(client.read_all() == Status::ok, request_failed);
    }
    ::_exit(correct);
}

TEST_CASE("kept clone: killed at any step, it has all that was answered") {
    kill_at_any_step(serve_clone, 400);
}

// --- a paused cache --------------------------------------------------------------------------

struct KeptRig {
    explicit KeptRig(OriginContents& of, std::string_view devices = "h")
        : contents(of), rig(rig_options(devices)) {
        rig.model = contents.now;
        rig.set_known(0, size, true);
    }
    using Writes = OriginCache::Writes;
    void set_source(bool continues = false, Writes writes = Writes::back) {
        auto made = std::make_unique<OriginCache>(
            *rig.volume, std::make_unique<MemoryOrigin>(contents),
            OriginCache::Options{.export_name = "cached",
                                 .reads_ahead = OriginCache::Ahead::nothing,
                                 .writes = writes,
                                 .max_unwritten = 1 << 20,
                                 .max_age = std::chrono::hours(1),
                                 .continues = continues});
        rig.volume->set_source(std::move(made));
    }
    void start(std::shared_ptr<KeptParts> parts = std::make_shared<FakeParts>(),
               Writes writes = Writes::back) {
        rig.volume = make_kept(rig, std::move(parts));
        set_source(false, writes);
    }
    PageCache& cache() { return *rig.volume->cache(); }
    void pause() {
        cache().pause();
        while (!cache().is_paused()) std::this_thread::yield();
        rig.volume->quiesce();
    }
    Status flush() {
        FlushJob job(rig, *rig.channels, client.account);
        return client.finish(job);
    }

    OriginContents& contents;
    Rig rig;
    Requests client{rig, Random(1)};
};

TEST_CASE("kept cache: another process takes over what is in memory") {
    OriginContents contents(size);
    std::ranges::fill(contents.now, std::byte{7});
    const auto parts = std::make_shared<FakeParts>();
    KeptRig old(contents);
    old.start(parts);
    REQUIRE(old.client.write(3 * page_size, 512) == Status::ok);
    REQUIRE(old.flush() == Status::ok);
    // A clean page, one that lacks parts, and one with changes.
    REQUIRE(old.client.read(0, page_size) == Status::ok);
    REQUIRE(old.client.read(page_size, 512) == Status::ok);
    REQUIRE(old.client.write(2 * page_size + 100, 5000) == Status::ok);
    old.pause();
    REQUIRE(!old.cache().hand_over());
    std::uint32_t writes = contents.writes;
    KeptRig next(contents);
    next.rig.volume = take_over(next.rig, parts->table, parts->copies(), parts, true);
    next.set_source();

    SUBCASE("it reads nothing of that again, and writes what is unwritten") {
        next.rig.volume->resume();
        next.rig.model = old.rig.model;
        const std::uint32_t reads = contents.reads;
        CHECK(next.client.read(0, page_size + 512) == Status::ok);
        CHECK(next.client.read(2 * page_size, 8192) == Status::ok);
        CHECK(contents.reads == reads);
        CHECK(next.client.read(page_size, page_size) == Status::ok);
        CHECK(contents.reads == reads + 1);
        CHECK(next.flush() == Status::ok);
        CHECK(contents.holds(contents.durable, next.rig.model, next.rig.known));
        REQUIRE(next.client.write(0, page_size) == Status::ok);
        // The end of the old process writes nothing.
        writes = contents.writes;
        const std::uint32_t flushes = contents.flushes;
        old.rig.volume.reset();
        CHECK(contents.writes == writes);
        CHECK(contents.flushes == flushes);
        next.rig.volume.reset();
        CHECK(contents.holds(contents.durable, next.rig.model, next.rig.known));
    }
    SUBCASE("until it resumes, it writes nothing") {
        CHECK(next.cache().unwritten().bytes == 64 * kib);  // a whole part
        CHECK(next.cache().flush_now() == Status::io_error);
        next.rig.volume.reset();
        CHECK(contents.writes == writes);
        // The old process goes on.
        old.rig.volume->resume();
        CHECK(old.client.read_all() == Status::ok);
        CHECK(old.flush() == Status::ok);
        CHECK(contents.holds(contents.durable, old.rig.model, old.rig.known));
    }
}

TEST_CASE("kept cache: another process receives the rest of a write to absent parts") {
    constexpr std::uint32_t part = 64 * kib;
    for (const std::string_view devices : {"h", "s"}) {
        for (const std::uint32_t sent : {1U, part, part + 5000}) {
            CAPTURE(devices);
            CAPTURE(sent);
            OriginContents contents(size);
            std::ranges::fill(contents.now, std::byte{7});
            const auto parts = std::make_shared<FakeParts>();
            KeptRig old(contents, devices);
            old.start(parts);
            SilentOwner owner;
            WriteTransfer write;
            const std::vector<std::byte> payload(3 * part, std::byte{8});
            write.begin({*old.rig.volume, *old.rig.channels, old.client.account}, owner,
                        {page_size, 3 * part});
            for (std::size_t filled = 0; filled != sent;) {
                settle(*old.rig.channels);
                filled += write.fill(std::span(payload).subspan(filled, sent - filled));
            }
            write.end_here();
            settle(*old.rig.channels);
            REQUIRE(write.done());
            REQUIRE(write.status() == Status::ok);
            old.pause();
            REQUIRE(!old.cache().hand_over());
            KeptRig next(contents, devices);
            next.rig.volume = take_over(next.rig, parts->table, parts->copies(), parts, true);
            next.set_source();
            next.rig.volume->resume();
            const std::uint64_t filled = (sent + part - 1) / part;
            CHECK(next.rig.volume->missing_parts(1) == (15 & ~PageDivision::run(0, filled)));
            std::fill_n(next.rig.model.begin() + page_size, sent, std::byte{8});
            CHECK(next.client.write(page_size + sent, 3 * part - sent) == Status::ok);
            CHECK(contents.reads == (sent % part == 0 ? 0 : 2));
            CHECK(next.client.read_all() == Status::ok);
            CHECK(next.flush() == Status::ok);
            CHECK(contents.holds(contents.durable, next.rig.model, next.rig.known));
        }
    }
}

TEST_CASE("kept cache: one that is never written to is handed over again, without a flush") {
    OriginContents contents(size);
    std::ranges::fill(contents.now, std::byte{7});
    contents.fails_flushes = true;
    const auto parts = std::make_shared<FakeParts>();
    std::vector<std::unique_ptr<KeptRig>> processes;
    for (int i = 0; i != 3; ++i) {
        KeptRig& each = *processes.emplace_back(std::make_unique<KeptRig>(contents));
        if (i == 0) {
            each.start(parts, OriginCache::Writes::none);
            REQUIRE(each.client.read(0, page_size + 512) == Status::ok);
        } else {
            each.rig.volume = take_over(each.rig, parts->table, parts->copies(), parts, true);
            each.set_source(true, OriginCache::Writes::none);
            each.rig.volume->resume();
            const std::uint32_t reads = contents.reads;
            CHECK(each.client.read(0, page_size + 512) == Status::ok);
            CHECK(contents.reads == reads);
        }
        each.pause();
        CHECK(each.cache().hand_over() == std::nullopt);
    }
    while (!processes.empty()) processes.pop_back();
    CHECK(contents.flushes == 0);
}

TEST_CASE("kept cache: a part stays marked until the origin has all of its changes") {
    OriginContents contents(size);
    KeptRig kept(contents);
    kept.start();
    const KeptCache marks = kept.rig.volume->kept_cache();
    const auto wait_for_unwritten = [&](std::uint64_t bytes) {
        while (kept.cache().unwritten().bytes != bytes) std::this_thread::yield();
    };
    REQUIRE(kept.client.write(0, 4096) == Status::ok);
    CHECK(marks.unwritten(0) == 1);
    contents.blocks_writes = true;
    CHECK(!kept.cache().drop(0));  // it is written now
    while (contents.begun_writes == 0) std::this_thread::yield();
    REQUIRE(kept.client.write(8192, 4096) == Status::ok);
    contents.blocks_writes = false;
    wait_for_unwritten(4096);
    CHECK(marks.unwritten(0) == 1);
    REQUIRE(kept.client.write(3 * 64 * kib, 512) == Status::ok);
    CHECK(marks.unwritten(0) == 9);
    CHECK(kept.flush() == Status::ok);
    CHECK(marks.unwritten(0) == 0);
    // Zeroes of a whole page leave no mark, since the origin has them.
    REQUIRE(kept.client.write(0, 4096) == Status::ok);
    REQUIRE(kept.client.zero(0, page_size, false) == Status::ok);
    CHECK(marks.unwritten(0) == 0);
}

TEST_CASE("kept cache: what was written is flushed before another process takes over") {
    OriginContents contents(size);
    KeptRig kept(contents);
    kept.start();
    kept.pause();
    CHECK(contents.flushes == 0);
    CHECK(!kept.cache().hand_over());
    kept.rig.volume->resume();
    REQUIRE(kept.client.write(0, 512) == Status::ok);
    REQUIRE(kept.flush() == Status::ok);
    REQUIRE(contents.flushes == 1);
    kept.pause();
    CHECK(contents.flushes == 2);
    CHECK(!kept.cache().hand_over());
    kept.rig.volume->resume();
    contents.fails_flushes = true;
    kept.pause();
    CHECK(kept.cache().hand_over() == "memory: it cannot be flushed; see the log");
    kept.rig.volume->resume();
    contents.fails_flushes = false;
    // What was lost then is not there in the next process either.
    CHECK(kept.flush() == Status::io_error);
    kept.pause();
    CHECK(kept.cache().hand_over().has_value());
}

TEST_CASE("kept cache: a volume on a device that has failed is not handed over") {
    OriginContents contents(size);
    KeptRig kept(contents, "s");
    kept.start();
    kept.rig.script.copies_until_dead = 0;
    CHECK(kept.client.read(0, 512) == Status::io_error);
    kept.pause();
    CHECK(kept.cache().hand_over() == kept.rig.devices.front()->info().id + " has failed");
}

TEST_CASE("kept cache: a paused cache drops nothing") {
    OriginContents contents(size);
    KeptRig kept(contents);
    kept.start();
    REQUIRE(kept.client.read(0, page_size) == Status::ok);
    kept.pause();
    CHECK(kept.cache().evict(1) == 0);
    CHECK(!kept.cache().drop(0));
    kept.rig.volume->resume();
    CHECK(kept.cache().evict(1) == 1);
}

TEST_CASE("kept cache: after a kill, pages without changes are read from the origin again") {
    OriginContents contents(size);
    std::ranges::fill(contents.now, std::byte{7});
    const auto parts = std::make_shared<FakeParts>();
    const auto left = std::make_shared<FakeParts>();
    OwnedFd table;
    {
        KeptRig old(contents);
        old.start(parts);
        REQUIRE(old.client.read(0, 3 * page_size) == Status::ok);
        REQUIRE(old.client.write(page_size, 512) == Status::ok);
        old.pause();  // so that its end writes nothing
        table = restore_image(read_image(parts->table, *parts, page_size), page_size, *left);
    }
    std::ranges::fill(contents.now, std::byte{9});
    KeptRig next(contents);
    next.rig.volume = take_over(next.rig, table, left->copies(), left);
    CHECK(next.rig.volume->mapped(1));
    CHECK(!next.rig.volume->mapped(0));
    CHECK(!next.rig.volume->mapped(2));
    next.set_source();
    next.rig.set_known(page_size, 64 * kib, false);  // the image has a few words of each page only
    CHECK(next.client.read_all() == Status::ok);
}

TEST_CASE("kept cache: what is in memory is only trusted by the process that it is handed to") {
    OriginContents contents(size);
    std::ranges::fill(contents.now, std::byte{7});
    const auto parts = std::make_shared<FakeParts>();
    KeptRig old(contents);
    old.start(parts);
    REQUIRE(old.client.read(0, page_size) == Status::ok);
    old.pause();
    REQUIRE(!old.cache().hand_over());
    std::ranges::fill(contents.now, std::byte{9});
    KeptRig next(contents);
    next.rig.volume = take_over(next.rig, parts->table, parts->copies(), parts);  // after a kill
    CHECK(!next.rig.volume->mapped(0));
    next.set_source(true);
    CHECK(next.client.read_all() == Status::ok);
    // The earlier process may have written to the origin without a flush.
    next.rig.volume.reset();
    CHECK(contents.flushes == 1);
}

// --- clones --------------------------------------------------------------------------------------

// A cache and a kept clone of it, as two processes have them one after the other.
struct CloneRig {
    explicit CloneRig(OriginContents& of, SourceId id = {1, 2},
                      OriginCache::Writes writes = OriginCache::Writes::none)
        : rig(rig_options("h")) {
        base = checked(Volume::create(cached_volume(), {rig.devices.front().get()}));
        auto origin = std::make_unique<MemoryOrigin>(of);
        origin->set_id(id);
        base->set_source(std::make_unique<OriginCache>(
            *base, std::move(origin),
            OriginCache::Options{.export_name = "base", .writes = writes}));
        rig.model = of.now;
        rig.set_known(0, size, true);
    }
    std::optional<std::string> take_over_clone(const std::shared_ptr<FakeParts>& parts) {
        rig.volume = take_over(rig, parts->table, parts->copies(), parts);
        return OriginClone::continue_with(*rig.volume, base);
    }

    Rig rig;
    std::shared_ptr<Volume> base;
    Requests client{rig, Random(1)};
};

TEST_CASE("kept clone: another process has what was written and zeroed, and reads the rest again") {
    OriginContents contents(size);
    std::ranges::fill(contents.now, std::byte{7});
    const auto parts = std::make_shared<FakeParts>();
    CloneRig old(contents);
    old.rig.volume = checked(OriginClone::make(
        old.base, {.name = "clone", .instance = new_instance(), .kept_parts = parts}, {}));
    REQUIRE(old.client.write(100, 512) == Status::ok);
    REQUIRE(old.client.write(2 * page_size, page_size) == Status::ok);
    REQUIRE(old.client.zero(2 * page_size, page_size, false) == Status::ok);
    REQUIRE(old.client.zero(4 * page_size, page_size, false) == Status::ok);
    REQUIRE(old.client.zero(6 * page_size, page_size, true) == Status::ok);

    CloneRig next(contents);
    REQUIRE(next.take_over_clone(parts) == std::nullopt);
    next.rig.model = old.rig.model;
    CHECK(next.client.read_all() == Status::ok);
    CHECK(next.rig.volume->mapped_bytes() == 2 * page_size);
    CHECK(next.client.write(4 * page_size + 5, 5) == Status::ok);
    CHECK(next.client.read_all() == Status::ok);
    CHECK(contains(next.rig.volume->resize(2 * size), "its size is that of its origin"));
}

class WatchedParts final : public KeptParts {
 public:
    bool keep_table(const OwnedFd& table) noexcept override {
        was_complete = checked(PageTable::open(OwnedFd::copy_of(table))).complete();
        return true;
    }
    bool keep_directory(const OwnedFd&) noexcept override { return true; }
    bool keep(std::uint32_t, std::uint32_t, const OwnedFd&) noexcept override { return true; }
    void drop(std::uint32_t, std::uint32_t) noexcept override {}
    bool keeps() const noexcept override { return true; }

    std::optional<bool> was_complete;  // when the supervisor got the table
};

TEST_CASE("kept clone: it is incomplete until it has the id of its source") {
    OriginContents contents(size);
    CloneRig made(contents);
    const auto parts = std::make_shared<WatchedParts>();
    made.rig.volume = checked(OriginClone::make(
        made.base, {.name = "clone", .instance = new_instance(), .kept_parts = parts}, {}));
    CHECK(parts->was_complete == false);
    CHECK(made.rig.volume->complete());
}

TEST_CASE("kept clone: it continues only with the same contents") {
    OriginContents contents(size);
    const auto parts = std::make_shared<FakeParts>();
    CloneRig old(contents);
    old.rig.volume = checked(OriginClone::make(
        old.base, {.name = "clone", .instance = new_instance(), .kept_parts = parts}, {}));
    REQUIRE(old.client.write(0, 512) == Status::ok);
    const auto refusal_by = [&](CloneRig next) {
        const auto why = next.take_over_clone(parts);
        REQUIRE(why);
        CHECK(next.rig.volume->source() == nullptr);
        return *why;
    };
    CHECK(contains(refusal_by(CloneRig(contents, {1, 3})), "memory has changed"));
    CHECK(contains(refusal_by(CloneRig(contents, {1, 2}, OriginCache::Writes::through)),
                   "is writable now"));
    CloneRig without(contents);
    without.base = checked(Volume::create(cached_volume(), {without.rig.devices.front().get()}));
    CHECK(without.take_over_clone(parts) == "it has no origin any more");
    CloneRig elsewhere(contents);
    CloneRig other(contents);
    other.base = elsewhere.base;
    CHECK(other.take_over_clone(parts) == "it is on another device now");
    CloneRig next(contents);
    CHECK(next.take_over_clone(parts) == std::nullopt);
}

}  // namespace
}  // namespace gpunbd::storage::test::kept_cache
