#include "storage/devices/host/host_device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "storage/devices/host/promised_memory.hpp"
#include "storage/devices/host/system_memory.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t default_reserve = 512 << 20;  // bytes
constexpr std::uint64_t huge_page = 2 << 20;          // bytes
constexpr std::uint64_t zeroed_per_poll = 4 << 20;    // bytes: other clients get their turn
// Promises looked at before an allocation is refused: there may be thousands of them, and clients
// who are refused come again.
constexpr std::size_t looks_per_refusal = 64;

class HostChannel final : public Channel {
 public:
    using Channel::Channel;
    bool receives_into(const Slab&, std::uint32_t) const override { return true; }
    bool sends_from(const Slab&, std::uint32_t) const override { return true; }

 protected:
    // Only zeroes come here; a long run of them is spread over polls.
    void progress(CopyQueue& queued) override {
        for (std::uint64_t budget = zeroed_per_poll; !queued.empty();) {
            Copy& copy = *queued.pop();
            std::memset(copy.cpu, 0, copy.length);
            finish(copy, Status::ok);
            if (copy.length >= budget) return;
            budget -= copy.length;
        }
    }
};

class HostDevice final : public Device {
 public:
    HostDevice(std::uint32_t number, const HostDeviceOptions& options)
        : Device(number), system_(options.root) {
        info_.id = "host";
        info_.name = "host memory";
        info_.access = "received into and sent from in place";
        info_.total = system_.total();
        info_.reserve = options.reserve.value_or(default_reserve);
        // Within a control group the rest of the machine is not for us, however much of it is free.
        capacity_ = std::min(options.capacity.value_or(info_.total), info_.total);
    }

    const DeviceInfo& info() const override { return info_; }

    std::uint64_t available() const override {
        for (std::size_t left = promised_.promises(); left != 0; --left) promised_.look();
        const std::uint64_t allocated = allocated_.load(std::memory_order_relaxed);
        const std::uint64_t own = capacity_ > allocated ? capacity_ - allocated : 0;
        const std::uint64_t free = beyond_reserve();
        return std::min(own, free - std::min(free, promised_.owed()));
    }

    Status allocate(std::uint64_t bytes, Provision provision, Slab& out) override {
        auto promise = std::make_unique<PromisedMemory::Promise>();
        if (!charge(*promise, bytes)) return Status::no_space;
        std::byte* const base = map(bytes);
        if (base == nullptr) {
            discharge(*promise);
            return Status::no_space;
        }
        if (provision == Provision::full) {
            if (::madvise(base, bytes, MADV_POPULATE_WRITE) == 0) {
                promised_.kept(*promise);
            } else if (errno != EINVAL) {  // EINVAL: a kernel before 5.14
                ::munmap(base, bytes);
                discharge(*promise);
                return Status::no_space;
            }
        }
        promised_.mapped(*promise, base);
        out = {.cpu = base,
               .address = reinterpret_cast<std::uintptr_t>(base),
               .bytes = bytes,
               .handle = reinterpret_cast<std::uintptr_t>(promise.release()),
               .resident = provision == Provision::full};
        return Status::ok;
    }

    void release(Slab& slab) noexcept override {
        const std::unique_ptr<PromisedMemory::Promise> promise(&promise_of(slab));
        ::munmap(slab.cpu, slab.bytes);
        discharge(*promise);
        slab = Slab{};
    }

    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        std::memset(slab.cpu + offset, 0, bytes);
        return Status::ok;
    }

    bool discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        if (slab.resident || ::madvise(slab.cpu + offset, bytes, MADV_DONTNEED) != 0) return false;
        promised_.discarded(promise_of(slab), bytes);
        return true;
    }

    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override {
        return std::make_unique<HostChannel>(options);
    }

 private:
    static PromisedMemory::Promise& promise_of(const Slab& slab) {
        return *reinterpret_cast<PromisedMemory::Promise*>(slab.handle);
    }

    // Aligned to huge pages: maps more, and gives the edges back. Null: the system refuses.
    static std::byte* map(std::uint64_t bytes) {
        const std::size_t extra = bytes >= huge_page ? huge_page : 0;
        void* const mapped = ::mmap(nullptr, bytes + extra, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) return nullptr;
        auto* base = static_cast<std::byte*>(mapped);
        if (extra != 0) {
            const std::size_t head = -reinterpret_cast<std::uintptr_t>(base) & (huge_page - 1);
            if (head != 0) ::munmap(base, head);
            if (head != extra) ::munmap(base + head + bytes, extra - head);
            base += head;
            ::madvise(base, bytes, MADV_HUGEPAGE);
        }
        return base;
    }

    std::uint64_t beyond_reserve() const {
        const std::uint64_t free = system_.available();
        return free - std::min(free, info_.reserve);
    }

    // The system itself would promise more than it has (overcommit) and kill us later.
    bool charge(PromisedMemory::Promise& promise, std::uint64_t bytes) {
        if (allocated_.fetch_add(bytes) + bytes <= capacity_ && promise_memory(promise, bytes)) {
            return true;
        }
        allocated_.fetch_sub(bytes);
        return false;
    }
    void discharge(PromisedMemory::Promise& promise) noexcept {
        allocated_.fetch_sub(promise.bytes);
        promised_.drop(promise);
    }

    bool promise_memory(PromisedMemory::Promise& promise, std::uint64_t bytes) {
        const std::uint64_t free = beyond_reserve();
        if (promised_.make(promise, bytes, free)) return true;
        std::size_t left = std::min(promised_.promises(), looks_per_refusal);
        for (; left != 0 && promised_.owed() + bytes > free; --left) promised_.look();
        // What has been given since is owed no more, nor is it free.
        return promised_.make(promise, bytes, beyond_reserve());
    }

    DeviceInfo info_;
    std::uint64_t capacity_ = 0;
    std::atomic<std::uint64_t> allocated_{0};
    const SystemMemory system_;
    mutable PromisedMemory promised_;  // looking is no change
};

}  // namespace

std::unique_ptr<Device> open_host_device(std::uint32_t number, const HostDeviceOptions& options) {
    return std::make_unique<HostDevice>(number, options);
}

}  // namespace gpunbd::storage
