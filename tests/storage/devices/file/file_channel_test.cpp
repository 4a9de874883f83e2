// Copies of any length and alignment, by two channels at once, compared with a model.
#include "storage/devices/file/file_channel.hpp"

#include "storage/devices/file/file_device.hpp"
#include "tests/storage/devices/file/file_folder.hpp"
#include "tests/storage/devices/file/no_writes.hpp"
#include "tests/storage/random.hpp"
#include "tests/storage/sizes.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {
namespace {

struct Mode {
    const char* folder;
    bool encrypt;
    bool io_uring;
};
const Mode modes[] = {{FileFolder::on_disk, true, true},
                      {FileFolder::on_disk, false, true},
                      {FileFolder::on_disk, true, false},
                      {FileFolder::in_memory, true, true},
                      {FileFolder::in_memory, false, false}};

// A file device with one slab.
class FileRig {
 public:
    static constexpr std::uint64_t bytes = 4 * mib;

    explicit FileRig(const Mode& mode)
        : folder(mode.folder),
          device(open_file_device(
              0, path(), {.capacity = bytes, .encrypt = mode.encrypt, .io_uring = mode.io_uring})) {
        CAPTURE(device->info().access);
        CHECK(device->info().access.starts_with("io_uring") == mode.io_uring);
        CHECK(device->info().access.ends_with("not encrypted") != mode.encrypt);
        allocate();
    }
    ~FileRig() { device->release(slab); }
    FileRig(const FileRig&) = delete;
    FileRig& operator=(const FileRig&) = delete;

    void allocate() { REQUIRE(device->allocate({.bytes = bytes}, slab) == Status::ok); }
    std::string path() const { return folder.path("spill"); }

    FileFolder folder;
    std::unique_ptr<Device> device;
    Slab slab;
};

const ChannelOptions small{.chunk_size = 64 * kib, .pinned = 1 * mib};

// One copy at a time through a channel.
class FileCopier final : private CopyOwner {
 public:
    explicit FileCopier(FileRig& rig) : rig_(rig), channel_(rig.device->open_channel(small)) {}

    Status write(std::uint64_t offset, std::uint32_t length, std::byte value) {
        std::vector<std::byte> staging(length, value);
        return copy(Copy::Kind::write, offset, length, staging.data());
    }
    Status zero(std::uint64_t offset, std::uint32_t length) {
        return copy(Copy::Kind::zero, offset, length, nullptr);
    }
    // The value of all bytes; 0xEE: they differ, or cannot be read.
    std::byte read(std::uint64_t offset, std::uint32_t length) {
        constexpr std::byte differ{0xEE};
        std::vector<std::byte> staging(length, differ);
        if (copy(Copy::Kind::read, offset, length, staging.data()) != Status::ok) return differ;
        const bool same = std::ranges::all_of(staging, [&](auto b) { return b == staging[0]; });
        return same ? staging[0] : differ;
    }
    Channel& channel() { return *channel_; }

 private:
    Status copy(Copy::Kind kind, std::uint64_t offset, std::uint32_t length, std::byte* staging) {
        Copy copy;
        copy.prepare(kind, length, rig_.slab.address + offset, nullptr, staging, *this);
        channel_->enqueue(copy);
        for (done_ = false; !done_; std::this_thread::yield()) channel_->poll();
        return copy.status;
    }
    void copy_done(Copy&) override { done_ = true; }

    FileRig& rig_;
    std::unique_ptr<Channel> channel_;
    bool done_ = false;
};

// A part of the slab with one client, which has at most one copy of it in flight. Its first and
// last block belong to its neighbours as well.
struct Segment {
    std::uint64_t offset = 0;
    std::vector<std::byte> model;
    // The copy in flight.
    Copy copy;
    std::uint32_t at = 0;
    std::vector<std::byte> payload;
    std::byte* staging = nullptr;
    std::size_t held = 0;
    bool busy = false;
};

// Copies within its segments at random, several at once, through its own channel and thread.
class FileClient final : private CopyOwner {
 public:
    FileClient(FileRig& rig, std::vector<Segment> segments, std::uint32_t seed)
        : rig_(rig), segments_(std::move(segments)), random_(seed) {}

    void run(int copies) {
        const auto channel = rig_.device->open_channel(small);
        channel_ = channel.get();
        while (copies != 0 || channel->busy()) {
            Segment& next = segments_[random_.below(static_cast<std::uint32_t>(segments_.size()))];
            if (copies != 0 && !next.busy && start(next)) --copies;
            if (random_.one_in(8)) channel->poll();
        }
        CHECK(channel->read_staging().free_bytes() == small.pinned);
        CHECK(channel->write_staging().free_bytes() == small.pinned);
    }
    int wrong() const { return wrong_; }

 private:
    bool start(Segment& segment) {
        const auto size = static_cast<std::uint32_t>(segment.model.size());
        segment.at = random_.one_in(3) ? 0 : random_.below(size);
        std::uint32_t length = size - segment.at;
        if (!random_.one_in(3)) length = 1 + random_.below(length);
        if (random_.one_in(3)) {  // whole blocks, if there are any
            const BlockRange whole = BlockRange::within(segment.offset, size);
            if (whole.count() != 0) {
                segment.at = static_cast<std::uint32_t>(whole.first * block_bytes - segment.offset);
                length = static_cast<std::uint32_t>(whole.count() * block_bytes);
            }
        }
        const auto kind = static_cast<Copy::Kind>(random_.below(3));
        segment.held = 0;
        segment.staging = nullptr;
        if (kind != Copy::Kind::zero) {
            segment.staging = arena(kind).take(length, segment.held);
            if (segment.staging == nullptr) return false;
        }
        segment.payload.assign(length, std::byte{0});
        if (kind == Copy::Kind::write) {
            for (std::byte& b : segment.payload) b = static_cast<std::byte>(random_.below(256));
            std::ranges::copy(segment.payload, segment.staging);
        }
        segment.copy.prepare(kind, length, rig_.slab.address + segment.offset + segment.at, nullptr,
                             segment.staging, *this);
        segment.busy = true;
        channel_->enqueue(segment.copy);
        return true;
    }
    void copy_done(Copy& copy) override {
        Segment& segment =
            *std::ranges::find_if(segments_, [&](Segment& each) { return &each.copy == &copy; });
        std::byte* const model = segment.model.data() + segment.at;
        if (copy.status != Status::ok) {
            ++wrong_;
        } else if (copy.kind != Copy::Kind::read) {
            std::ranges::copy(segment.payload, model);
        } else if (std::memcmp(model, segment.staging, copy.length) != 0) {
            ++wrong_;
        }
        if (segment.staging != nullptr) {
            arena(copy.kind).give_back(segment.staging, copy.length, segment.held);
        }
        segment.busy = false;
    }
    StagingArena& arena(Copy::Kind kind) {
        return kind == Copy::Kind::read ? channel_->read_staging() : channel_->write_staging();
    }

    FileRig& rig_;
    std::vector<Segment> segments_;
    Random random_;
    Channel* channel_ = nullptr;
    int wrong_ = 0;
};

TEST_CASE("file channel: no update of a block is lost between copies of two channels") {
    for (const Mode& mode : modes) {
        CAPTURE(mode.folder);
        CAPTURE(mode.encrypt);
        CAPTURE(mode.io_uring);
        FileRig rig(mode);
        Random random(7);
        std::vector<Segment> segments[2];
        std::uint64_t offset = 0;
        for (int i = 0; i != 64; ++i) {
            Segment segment;
            segment.offset = offset;
            segment.model.resize(random.one_in(2) ? random.between(1, 3000)
                                                  : random.between(1, 60000));
            offset += segment.model.size();
            segments[i % 2].push_back(std::move(segment));
        }
        REQUIRE(offset <= FileRig::bytes);
        FileClient first(rig, std::move(segments[0]), 1);
        FileClient second(rig, std::move(segments[1]), 2);
        std::thread other([&] { second.run(4000); });
        first.run(4000);
        other.join();
        CHECK(first.wrong() == 0);
        CHECK(second.wrong() == 0);
    }
}

// The write of the part must not bring back what the block was before.
TEST_CASE("file channel: a write of a whole block survives a concurrent write of a part of it") {
    for (const Mode& mode : modes) {
        FileRig rig(mode);
        std::atomic<bool> stop{false};
        std::thread other([&] {
            FileCopier copier(rig);
            while (!stop) copier.write(0, 100, std::byte{1});
        });
        FileCopier copier(rig);
        int lost = 0;
        for (int round = 0; round != 500; ++round) {
            const std::byte value{static_cast<unsigned char>(2 + round % 200)};
            copier.write(0, 4096, value);
            if (copier.read(100, 3996) != value) ++lost;
        }
        stop = true;
        other.join();
        CHECK(lost == 0);
    }
}

TEST_CASE("file channel: memory reads as zeroes until it is written, and after it was cleared") {
    for (const Mode& mode : modes) {
        FileRig rig(mode);
        FileCopier copier(rig);
        CHECK(copier.read(0, 65536) == std::byte{0});
        REQUIRE(copier.write(0, 65536, std::byte{1}) == Status::ok);
        REQUIRE(copier.zero(5000, 10000) == Status::ok);
        CHECK(copier.read(0, 5000) == std::byte{1});
        CHECK(copier.read(5000, 10000) == std::byte{0});
        CHECK(copier.read(15000, 50536) == std::byte{1});
        REQUIRE(rig.device->clear(rig.slab, 0, 8192) == Status::ok);
        CHECK(copier.read(0, 15000) == std::byte{0});
        CHECK(copier.read(15000, 50536) == std::byte{1});
        // Only a part of a block is written, and the remainder is not what it was before.
        REQUIRE(copier.write(100, 200, std::byte{2}) == Status::ok);
        CHECK(copier.read(0, 100) == std::byte{0});
        CHECK(copier.read(100, 200) == std::byte{2});
        CHECK(copier.read(300, 14700) == std::byte{0});
        REQUIRE(rig.device->discard(rig.slab, 0, FileRig::bytes));
        CHECK(copier.read(0, 65536) == std::byte{0});

        REQUIRE(copier.write(0, 65536, std::byte{3}) == Status::ok);
        rig.device->release(rig.slab);
        CHECK(rig.device->available() == FileRig::bytes);
        rig.allocate();
        CHECK(copier.read(0, 65536) == std::byte{0});
    }
}

// A copy that needs no I/O ends at once, and its owner uses it again for the next one.
TEST_CASE("file channel: a copy may be enqueued again when it ends") {
    struct Repeater final : CopyOwner {
        explicit Repeater(FileRig& its_rig)
            : rig(its_rig), channel(rig.device->open_channel(small)) {}
        void start() {
            copy.prepare(Copy::Kind::read, 4096, rig.slab.address, nullptr, staging.data(), *this);
            channel->enqueue(copy);
        }
        void copy_done(Copy& /*copy*/) override {
            if (--left != 0) start();
        }

        FileRig& rig;
        std::unique_ptr<Channel> channel;
        Copy copy;
        std::vector<std::byte> staging = std::vector<std::byte>(4096);
        int left = 3;
    };
    FileRig rig(modes[0]);
    Repeater repeater(rig);
    repeater.start();
    for (int polls = 0; polls != 3; ++polls) repeater.channel->poll();
    CHECK(repeater.left == 0);
    CHECK_FALSE(repeater.channel->busy());
}

TEST_CASE("file channel: the file contains the payload only if it is not encrypted") {
    for (const Mode& mode : modes) {
        FileRig rig(mode);
        FileCopier copier(rig);
        constexpr std::byte secret{0x5A};
        REQUIRE(copier.write(4096, 8192, secret) == Status::ok);
        REQUIRE(copier.write(20000, 1000, secret) == Status::ok);
        const std::string all = rig.folder.read("spill");
        REQUIRE(all.size() > FileRig::bytes);
        const std::string clear(32, static_cast<char>(secret));
        CHECK(contains(all, clear) != mode.encrypt);
        // Equal blocks do not look equal.
        const std::uint64_t at = rig.slab.address + 4096;
        CHECK((all.substr(at, 4096) != all.substr(at + 4096, 4096)) == mode.encrypt);
    }
}

TEST_CASE("file channel: counts its copies as file I/O") {
    FileRig rig(modes[0]);
    FileCopier copier(rig);
    REQUIRE(copier.write(0, 4096, std::byte{1}) == Status::ok);
    const auto& counts =
        copier.channel().counters().by_path[static_cast<std::size_t>(PathKind::file)];
    CHECK(counts[static_cast<std::size_t>(Copy::Kind::write)].bytes.value() == 4096);
    CHECK_FALSE(copier.channel().receives_into(rig.slab, 4096));
}

TEST_CASE("file channel: after a failed write nothing more is written, and reads continue") {
    for (const Mode& mode : modes) {
        FileRig rig(mode);
        FileCopier copier(rig);
        REQUIRE(copier.write(0, 65536, std::byte{1}) == Status::ok);
        CHECK_FALSE(rig.device->failed());
        {
            const NoWrites full;
            CHECK(copier.write(8192, 4096, std::byte{2}) == Status::io_error);
        }
        CHECK(rig.device->failed());
        CHECK(rig.device->readable());
        CHECK(rig.device->available() == 0);
        CHECK(copier.write(0, 4096, std::byte{3}) == Status::io_error);
        CHECK(copier.zero(0, 100) == Status::io_error);
        CHECK(copier.read(0, 65536) == std::byte{1});
        Slab slab;
        CHECK(rig.device->allocate({.bytes = mib}, slab) != Status::ok);
    }
}

TEST_CASE("file channel: a read error is an error of that copy only") {
    for (const Mode& mode : modes) {
        FileRig rig(mode);
        FileCopier copier(rig);
        REQUIRE(copier.write(0, 3 * 65536, std::byte{1}) == Status::ok);
        std::filesystem::resize_file(rig.path(), rig.slab.address + 65536);
        CHECK(copier.read(65536, 65536) == std::byte{0xEE});
        CHECK(copier.read(0, 65536) == std::byte{1});
        CHECK_FALSE(rig.device->failed());
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
