#include "storage/devices/slab_copy.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/device.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage {

namespace {

// While a copy is in flight. A short one ends before a thread that sleeps wakes up again.
constexpr std::chrono::microseconds poll_interval{20};
constexpr std::chrono::microseconds polls_without_pause{30};
constexpr std::uint32_t chunk_of_one_copy = 256 << 10;  // bytes: its channels do not stay open

// One end of a copy.
class End final : private CopyOwner {
 public:
    End(const SlabPosition& at, Channel& channel) : at_(at), channel_(channel) {}
    End(const End&) = delete;
    End& operator=(const End&) = delete;
    ~End() {
        if (staging_ != nullptr) arena_->give_back(staging_, length_, held_);
    }

    std::uint32_t chunk_size() const { return channel_.options().chunk_size; }

    // Null: a copy failed. Valid until the next call.
    const std::byte* read(std::uint64_t done, std::uint32_t length) {
        if (at_.device.sends_in_place()) return at_.slab.cpu + at_.offset + done;
        if (!take(channel_.read_staging(), length)) return nullptr;
        return run(Copy::Kind::read, done, length) == Status::ok ? staging_ : nullptr;
    }
    Status write(std::uint64_t done, const std::byte* data, std::uint32_t length) {
        std::byte* const memory = lend(done, length);
        if (memory == nullptr) return Status::io_error;
        if (memory == staging_) {
            std::memcpy(memory, data, length);
        } else {
            store_streaming(memory, data, length);
        }
        return filled(done, length);
    }
    // Memory for what is written next; null: there is none. Call filled() next.
    std::byte* lend(std::uint64_t done, std::uint32_t length) {
        if (channel_.receives_into(at_.slab, length)) return at_.slab.cpu + at_.offset + done;
        return take(channel_.write_staging(), length) ? staging_ : nullptr;
    }
    Status filled(std::uint64_t done, std::uint32_t length) {
        if (channel_.receives_into(at_.slab, length)) return Status::ok;
        return run(Copy::Kind::write, done, length);
    }

 private:
    // It is used for one chunk after another, of which the first is the longest.
    bool take(StagingArena& arena, std::uint32_t length) {
        if (staging_ != nullptr) return true;
        staging_ = arena.take(length, held_);
        arena_ = &arena;
        length_ = length;
        return staging_ != nullptr;
    }
    Status run(Copy::Kind kind, std::uint64_t done, std::uint32_t length) {
        const std::uint64_t offset = at_.offset + done;
        std::byte* const base = kind == Copy::Kind::write ? nullptr : at_.slab.cpu;
        Copy copy;
        copy.prepare(kind, length, at_.slab.address + offset,
                     base == nullptr ? nullptr : base + offset, staging_, *this,
                     at_.slab.revocable);
        is_done_ = false;
        channel_.enqueue(copy);
        channel_.poll();
        const auto sleeps_from = std::chrono::steady_clock::now() + polls_without_pause;
        while (!is_done_) {
            if (channel_.waits_for_threads() || std::chrono::steady_clock::now() >= sleeps_from) {
                std::this_thread::sleep_for(poll_interval);
            }
            channel_.poll();
        }
        return copy.status;
    }
    void copy_done(Copy&) override { is_done_ = true; }

    const SlabPosition at_;
    Channel& channel_;
    StagingArena* arena_ = nullptr;  // of staging_
    std::byte* staging_ = nullptr;
    std::uint32_t length_ = 0;  // of staging_, bytes
    std::size_t held_ = 0;
    bool is_done_ = false;
};

// Calls `copy` for one part after another, until one fails.
template <typename CopyPart>
Status copy_in_parts(std::uint64_t bytes, std::uint32_t most, CopyPart copy) {
    for (std::uint64_t done = 0; done != bytes;) {
        const auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes - done, most));
        if (const Status status = copy(done, length); status != Status::ok) return status;
        done += length;
    }
    store_fence();
    return Status::ok;
}

}  // namespace

SlabCopier::SlabCopier(std::uint32_t chunk) : chunk_(chunk) {}

SlabCopier::~SlabCopier() = default;

void SlabCopier::open(Device& device) {
    const Lock lock(mutex_);
    channel_to(device);
}

void SlabCopier::close_if_idle() {
    const Lock lock(mutex_);
    if (!std::exchange(used_, false)) opened_.clear();
}

Channel& SlabCopier::channel_to(Device& device) {
    const auto found = std::ranges::find(opened_, &device, &Opened::device);
    if (found != opened_.end()) return *found->channel;
    auto channel = device.open_channel({.chunk_size = chunk_, .pinned = chunk_});
    return *opened_.emplace_back(&device, std::move(channel)).channel;
}

Status SlabCopier::copy(SlabPosition from, SlabPosition to, std::uint64_t bytes) {
    GPUNBD_ASSERT(from.offset + bytes <= from.slab.bytes && to.offset + bytes <= to.slab.bytes,
                  "pages lie within their slabs");
    const Lock lock(mutex_);
    used_ = true;
    End source(from, channel_to(from.device));
    End target(to, channel_to(to.device));
    return copy_in_parts(bytes, std::min(source.chunk_size(), target.chunk_size()),
                         [&](std::uint64_t done, std::uint32_t length) {
                             const std::byte* const data = source.read(done, length);
                             return data == nullptr ? Status::io_error
                                                    : target.write(done, data, length);
                         });
}

Status SlabCopier::fill(SlabPosition to, std::uint64_t bytes, const Read& read) {
    GPUNBD_ASSERT(to.offset + bytes <= to.slab.bytes, "pages lie within their slabs");
    const Lock lock(mutex_);
    used_ = true;
    End target(to, channel_to(to.device));
    return copy_in_parts(bytes, target.chunk_size(), [&](std::uint64_t done, std::uint32_t length) {
        std::byte* const memory = target.lend(done, length);
        if (memory == nullptr) return Status::io_error;
        const Status status = read(done, {memory, length});
        return status == Status::ok ? target.filled(done, length) : status;
    });
}

Status SlabCopier::drain(SlabPosition from, std::uint64_t bytes, const Write& write) {
    GPUNBD_ASSERT(from.offset + bytes <= from.slab.bytes, "pages lie within their slabs");
    const Lock lock(mutex_);
    used_ = true;
    End source(from, channel_to(from.device));
    return copy_in_parts(bytes, source.chunk_size(), [&](std::uint64_t done, std::uint32_t length) {
        const std::byte* const memory = source.read(done, length);
        return memory == nullptr ? Status::io_error : write(done, {memory, length});
    });
}

Status Device::copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                    std::uint64_t to_offset, std::uint64_t bytes) {
    return SlabCopier(chunk_of_one_copy)
        .copy({.device = *this, .slab = from, .offset = from_offset},
              {.device = *this, .slab = to, .offset = to_offset}, bytes);
}

}  // namespace gpunbd::storage
