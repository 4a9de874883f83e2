#include "tests/storage/rig.hpp"

#include "storage/devices/file/file_device.hpp"
#include "storage/devices/pci/bar_device.hpp"
#include "tests/storage/example_driver.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {

namespace {

// What has not ended by then hangs. Threads that copy take as long as the machine lets them.
constexpr std::chrono::minutes time_limit(2);
constexpr std::uint64_t bar_bytes = 4 * mib;
constexpr std::uint64_t file_bytes = 64 * mib;

// True: a requested page is ready.
bool wait_for_pages(Channels& channels) {
    const PageCompletions& completions = channels.page_completions();
    while (completions.in_progress() != 0 && !completions.any()) std::this_thread::yield();
    return completions.any();
}

}  // namespace

Rig::Rig(const RigOptions& with) : options(with) {
    std::vector<Device*> all;
    for (const char kind : options.devices) all.push_back(&make_device(kind));
    std::vector<Spill> spills;
    for (const char kind : options.spills) {
        spills.push_back({.device = &make_device(kind), .budget = &spill_budget});
    }
    volume =
        checked(Volume::create({.size = options.size,
                                .page_size = options.page_size,
                                .stripe_size = options.stripe_size,
                                .provision = options.provision},
                               all, {}, {}, options.spills_later ? std::vector<Spill>() : spills));
    channels = open_channels();
    model.resize(options.size);
    known.assign(options.size, true);
}

Device& Rig::make_device(char kind) {
    const auto number = static_cast<std::uint32_t>(devices.size());
    devices.push_back(kind == 'b'                  ? make_bar(number)
                      : kind == 'e'                ? example_driver().open("example", number, {})
                      : kind == 'f'                ? make_file(number)
                      : kind == 'v' || kind == 'w' ? make_vulkan(number, kind == 'w')
                                                   : make_memory(number, kind == 's'));
    return *devices.back();
}

std::unique_ptr<Device> Rig::make_memory(std::uint32_t number, bool staged) {
    auto memory =
        std::make_unique<MemoryDevice>(number, MemoryDevice::Options{.capacity = options.capacity,
                                                                     .discards = options.discards,
                                                                     .slow = options.slow});
    memories.push_back(memory.get());
    if (staged) return make_faulty_device(std::move(memory), script);
    return memory;
}

std::unique_ptr<Device> Rig::make_bar(std::uint32_t number) {
    FakeCard& card = cards.emplace_back();
    card.add(2, bar_bytes);
    return open_bar_device(number, BarId(card.id(2)),
                           {.reserve = {}, .capacity = options.capacity, .sysfs = card.sysfs()});
}

std::unique_ptr<Device> Rig::make_file(std::uint32_t number) {
    return open_file_device(number, folder.path("spill" + std::to_string(number)),
                            {.capacity = std::min(options.capacity, file_bytes)});
}

std::unique_ptr<Device> Rig::make_vulkan(std::uint32_t number, bool staged) {
    if (!vulkan_layer) vulkan_layer.emplace();
    return vulkan_layer->open({.reserve = 0,
                               .capacity = options.capacity,
                               .mapped = staged ? std::optional<std::uint64_t>(0) : std::nullopt},
                              number);
}

bool has_devices(std::string_view devices) {
    if (devices.find_first_of("vw") == std::string_view::npos) return true;
    static const std::string why_no_vulkan = vulkan::test::DriverLayer().why_none();
    if (why_no_vulkan.empty()) return true;
    MESSAGE("SKIPPED in part: " << why_no_vulkan);
    return false;
}

std::unique_ptr<Channels> Rig::open_channels() {
    auto opened = std::make_unique<Channels>(options.channels);
    for (const auto& device : devices) opened->open(*device);
    return opened;
}

Rig::~Rig() {
    volume.reset();
    for (const auto& device : devices) CHECK_FALSE(device->releases().pending());
}

void Rig::set_known(std::uint64_t offset, std::uint64_t length, bool is_known) {
    std::memset(known.data() + offset, is_known ? 1 : 0, length);
}

std::uint64_t Rig::pages() const { return (options.size - 1) / options.page_size + 1; }

void Rig::check_idle(Channels& of) {
    for (const auto& device : devices) {
        Channel& channel = of.to(*device);
        CHECK(channel.read_staging().free_bytes() == channel.read_staging().largest());
        CHECK(channel.write_staging().free_bytes() == channel.write_staging().largest());
    }
    CHECK_FALSE(of.busy());
}

void Rig::check_settled() {
    settle(*channels);
    check_idle(*channels);
}

void Rig::finish(const std::vector<Job*>& jobs, Random& random) {
    REQUIRE(run(*channels, jobs, random));
    check_settled();
}

void Rig::map_all() {
    for (std::uint64_t page = 0; page != pages(); ++page) {
        PageRef ref;
        REQUIRE(volume->map(page, ref) == Status::ok);
    }
}

std::string Rig::set_spills(std::initializer_list<std::size_t> indices) {
    std::vector<Spill> spills;
    for (const std::size_t index : indices) {
        spills.push_back({.device = devices[index].get(), .budget = &spill_budget});
    }
    return volume->set_spills(spills);
}

void Rig::check_pages() {
    for (std::uint64_t page = 0; page != pages(); ++page) volume->unmap(page);
    CHECK(volume->mapped_bytes() == 0);
    CHECK(volume->retired_bytes() == 0);  // no page is pinned
    for (MemoryDevice* const memory : memories) CHECK(memory->slabs() <= 1);
    script.allocations_until_failure = FaultScript::never;
    map_all();
    CHECK(volume->allocated_bytes() == pages() * options.page_size);
    std::ranges::fill(model, std::byte{0});
    set_known(0, options.size, true);
    CHECK(Requests{*this, Random(1)}.read_all() == Status::ok);
    for (std::uint64_t page = 0; page != pages(); ++page) volume->unmap(page);
}

WriteJob::WriteJob(Rig& rig, Channels& channels, ClientAccount& account, std::uint64_t offset,
                   std::uint32_t length, std::uint32_t seed, bool is_durable)
    : rig_(rig), offset_(offset), payload_(length) {
    // Never zero, as holes are.
    std::uint32_t state = seed;
    for (std::byte& each : payload_) {
        state = state * 1664525 + 1013904223;
        each = static_cast<std::byte>(state >> 24 | 1);
    }
    // Unknown until the request has ended.
    rig_.set_known(offset, length, false);
    transfer_.begin({*rig.volume, channels, account}, *this, {offset, length}, is_durable);
}

bool WriteJob::step(Random& random) {
    // A blocked transfer may continue only after transfer_moved().
    if (ended() || (blocked_ && !may_continue())) return false;
    blocked_ = false;
    if (transfer_.status() != Status::ok && !abandoned_) {
        iovec none{};
        CHECK(transfer_.lend({&none, 1}) == 0);
        CHECK(transfer_.fill(std::span(payload_).first(1)) == 0);
        abandon();
        return true;
    }
    if (transfer_.done()) {
        finish();
        return true;
    }
    if (abandoned_) {
        blocked_ = true;
        return false;
    }
    iovec lent[4];
    const std::size_t count = transfer_.lend({lent, random.between(1, 4)});
    std::size_t room = 0;
    for (std::size_t i = 0; i != count; ++i) {
        REQUIRE(lent[i].iov_len != 0);
        room += lent[i].iov_len;
    }
    if (room == 0) {
        CHECK(transfer_.fill(std::span(payload_).subspan(sent_)) == 0);
        CHECK(transfer_.all_filled() == (sent_ == payload_.size()));
        blocked_ = true;
        return false;
    }
    REQUIRE(room <= payload_.size() - sent_);
    // Most pieces are large, some are tiny, and some end with the lent memory.
    std::size_t part = random.one_in(3) ? room : 1 + random.below(static_cast<std::uint32_t>(room));
    if (random.one_in(4)) part = std::min<std::size_t>(part, random.between(1, 100));
    if (random.one_in(3)) {
        const std::size_t filled = transfer_.fill(std::span(payload_).subspan(sent_, part));
        REQUIRE(filled == part);
    } else {
        std::size_t at = sent_;
        std::size_t left = part;
        for (std::size_t i = 0; left != 0; ++i) {
            const std::size_t piece = std::min(left, lent[i].iov_len);
            std::memcpy(lent[i].iov_base, payload_.data() + at, piece);
            at += piece;
            left -= piece;
        }
        transfer_.filled(part);
    }
    sent_ += part;
    return true;
}

void WriteJob::abandon() {
    if (ended() || abandoned_) return;
    abandoned_ = true;
    blocked_ = false;
    transfer_.abandon();
    CHECK(transfer_.status() != Status::ok);
}

void WriteJob::finish() {
    end(transfer_.status());
    if (transfer_.status() != Status::ok) return;
    CHECK(sent_ == payload_.size());
    CHECK(transfer_.all_filled());
    std::copy(payload_.begin(), payload_.end(),
              rig_.model.begin() + static_cast<std::ptrdiff_t>(offset_));
    rig_.set_known(offset_, payload_.size(), true);
}

ReadJob::ReadJob(Rig& rig, Channels& channels, ClientAccount& account, std::uint64_t offset,
                 std::uint32_t length)
    : rig_(rig), at_(offset), end_(offset + length) {
    transfer_.begin({*rig.volume, channels, account}, *this, {offset, length});
}

bool ReadJob::step(Random& random) {
    if (ended() || (blocked_ && lent_.empty() && !may_continue())) return false;
    blocked_ = false;
    if (transfer_.status() != Status::ok && !abandoned_) {
        ReadTransfer::Piece none;
        CHECK_FALSE(transfer_.next(none));
        abandon();
        return true;
    }
    if (abandoned_) {
        if (transfer_.idle()) {
            end(transfer_.status() == Status::ok ? Status::io_error : transfer_.status());
            return true;
        }
        blocked_ = true;
        return false;
    }
    if (lent_.empty() && transfer_.all_taken()) {
        CHECK(at_ == end_);
        CHECK(transfer_.idle());
        end(Status::ok);
        return true;
    }
    if (transfer_.whole_ready()) expect_whole_ = true;
    if (lent_.empty() || random.one_in(2)) {
        ReadTransfer::Piece piece;
        if (transfer_.next(piece)) {
            REQUIRE(piece.length != 0);
            REQUIRE(piece.offset == at_);
            REQUIRE(piece.length <= end_ - at_);
            at_ += piece.length;
            compare(piece);
            lent_.push_back(piece);
            return true;
        }
        // Once everything was ready, no wait is needed.
        REQUIRE((!expect_whole_ || transfer_.all_taken()));
        if (lent_.empty()) {
            blocked_ = true;
            return false;
        }
    }
    // The lent memory has not changed.
    compare(lent_.front());
    lent_.pop_front();
    transfer_.give_back();
    return true;
}

void ReadJob::abandon() {
    if (ended() || abandoned_) return;
    abandoned_ = true;
    blocked_ = false;
    lent_.clear();
    transfer_.abandon();
}

void ReadJob::compare(const ReadTransfer::Piece& piece) const {
    const std::byte* const expected = rig_.model.data() + piece.offset;
    const auto known = rig_.known.begin() + static_cast<std::ptrdiff_t>(piece.offset);
    const bool equal = piece.data != nullptr
                           ? std::memcmp(piece.data, expected, piece.length) == 0
                           : *expected == std::byte{0} &&
                                 std::memcmp(expected, expected + 1, piece.length - 1) == 0;
    if (equal) return;
    for (std::uint32_t i = 0; i != piece.length; ++i) {
        if (known[i] == 0) continue;
        const std::byte seen = piece.data == nullptr ? std::byte{0} : piece.data[i];
        if (seen == expected[i]) continue;
        const std::uint64_t wrong_at = piece.offset + i;
        CAPTURE(wrong_at);
        REQUIRE(seen == expected[i]);
    }
}

ZeroJob::ZeroJob(Rig& rig, Channels& channels, ClientAccount& account, std::uint64_t offset,
                 std::uint32_t length, bool keep_pages)
    : rig_(rig), offset_(offset), length_(length) {
    const std::uint64_t size = rig.options.page_size;
    for (std::uint64_t page = 0; page != rig.pages(); ++page) {
        const std::uint64_t end = std::min((page + 1) * size, rig.options.size);
        if (page * size >= offset && end <= offset + length) whole_.push_back(page);
    }
    rig_.set_known(offset, length, false);
    transfer_.begin({*rig.volume, channels, account}, *this, {offset, length},
                    {.keep_pages = keep_pages});
}

bool ZeroJob::step(Random&) {
    if (ended() || !may_continue()) return false;
    if (!transfer_.done()) return false;
    end(transfer_.status());
    if (transfer_.status() != Status::ok) return true;
    const auto first = rig_.model.begin() + static_cast<std::ptrdiff_t>(offset_);
    std::fill(first, first + length_, std::byte{0});
    rig_.set_known(offset_, length_, true);
    return true;
}

Status Requests::finish(Job& job) {
    rig.finish({&job}, random);
    CHECK(account.reads == 0);
    CHECK(account.writes == 0);
    return job.status();
}

Status Requests::write(std::uint64_t offset, std::uint32_t length) {
    WriteJob job(rig, *rig.channels, account, offset, length, ++seed);
    return finish(job);
}

Status Requests::read(std::uint64_t offset, std::uint32_t length) {
    ReadJob job(rig, *rig.channels, account, offset, length);
    return finish(job);
}

Status Requests::zero(std::uint64_t offset, std::uint32_t length, bool keep_pages) {
    ZeroJob job(rig, *rig.channels, account, offset, length, keep_pages);
    const Status status = finish(job);
    for (const std::uint64_t whole : job.whole_pages()) {
        if (!keep_pages && status == Status::ok) CHECK_FALSE(rig.mapped(whole));
    }
    return status;
}

bool run(Channels& channels, const std::vector<Job*>& jobs, Random& random) {
    const auto end = std::chrono::steady_clock::now() + time_limit;
    while (std::chrono::steady_clock::now() < end) {
        bool moved = false;
        for (std::size_t i = 0; i != jobs.size(); ++i) {
            Job& job = *jobs[random.below(static_cast<std::uint32_t>(jobs.size()))];
            moved = job.step(random) || moved;
        }
        if (random.one_in(4)) {
            for (Job* const job : jobs) moved = job->step(random) || moved;
        }
        const bool busy = channels.busy();
        channels.poll();
        if (busy && !moved) std::this_thread::yield();  // to threads that copy
        if (moved || busy) continue;
        for (Job* const job : jobs) moved = job->step(random) || moved;
        if (moved || channels.busy()) continue;
        if (wait_for_pages(channels)) continue;
        return std::all_of(jobs.begin(), jobs.end(), [](const Job* job) { return job->ended(); });
    }
    return false;
}

void settle(Channels& channels) {
    const auto end = std::chrono::steady_clock::now() + time_limit;
    while (channels.busy() || wait_for_pages(channels)) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        channels.poll();
        if (channels.busy()) std::this_thread::yield();
    }
}

}  // namespace gpunbd::storage::test
