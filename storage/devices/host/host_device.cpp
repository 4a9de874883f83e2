#include "storage/devices/host/host_device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t default_reserve = 512 << 20;  // bytes
constexpr std::uint64_t huge_page = 2 << 20;          // bytes
constexpr std::uint64_t zeroed_per_poll = 4 << 20;    // bytes: other clients get their turn

// A line of /proc/meminfo, in bytes; 0 where it cannot be read.
std::uint64_t meminfo(const std::string& key) {
    std::ifstream file("/proc/meminfo");
    std::string name;
    std::uint64_t kib = 0;
    for (std::string rest; file >> name >> kib && std::getline(file, rest);) {
        if (name == key + ":") return kib * 1024;
    }
    return 0;
}

// What a control group lets this process have, or no limit (cgroup v2).
std::uint64_t cgroup_limit() {
    std::ifstream file("/sys/fs/cgroup/memory.max");
    std::uint64_t bytes = 0;
    return file >> bytes ? bytes : std::numeric_limits<std::uint64_t>::max();
}

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
    HostDevice(std::uint32_t number, const HostDeviceOptions& options) : Device(number) {
        info_.id = "host";
        info_.name = "host memory";
        info_.access = "received into and sent from in place";
        info_.total = std::min(meminfo("MemTotal"), cgroup_limit());
        info_.reserve = options.reserve.value_or(default_reserve);
        // Within a control group the rest of the machine is not for us, however much of it is free.
        capacity_ = std::min(options.capacity.value_or(info_.total), info_.total);
    }

    const DeviceInfo& info() const override { return info_; }

    std::uint64_t available() const override {
        const std::uint64_t allocated = allocated_.load(std::memory_order_relaxed);
        const std::uint64_t own = capacity_ > allocated ? capacity_ - allocated : 0;
        const std::uint64_t free = meminfo("MemAvailable");
        return std::min(own, free > info_.reserve ? free - info_.reserve : 0);
    }

    Status allocate(std::uint64_t bytes, Provision provision, Slab& out) override {
        if (!charge(bytes)) return Status::no_space;
        // Aligned to huge pages: map more, and give the edges back.
        const std::size_t extra = bytes >= huge_page ? huge_page : 0;
        void* const mapped = ::mmap(nullptr, bytes + extra, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) {
            allocated_.fetch_sub(bytes);
            return Status::no_space;
        }
        auto* base = static_cast<std::byte*>(mapped);
        if (extra != 0) {
            const std::size_t head = -reinterpret_cast<std::uintptr_t>(base) & (huge_page - 1);
            if (head != 0) ::munmap(base, head);
            if (head != extra) ::munmap(base + head + bytes, extra - head);
            base += head;
            ::madvise(base, bytes, MADV_HUGEPAGE);
        }
        if (provision == Provision::full && ::madvise(base, bytes, MADV_POPULATE_WRITE) != 0 &&
            errno != EINVAL) {  // EINVAL: a kernel before 5.14
            ::munmap(base, bytes);
            allocated_.fetch_sub(bytes);
            return Status::no_space;
        }
        out = {.cpu = base,
               .address = reinterpret_cast<std::uintptr_t>(base),
               .bytes = bytes,
               .resident = provision == Provision::full};
        return Status::ok;
    }

    void release(Slab& slab) noexcept override {
        ::munmap(slab.cpu, slab.bytes);
        allocated_.fetch_sub(slab.bytes);
        slab = Slab{};
    }

    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        std::memset(slab.cpu + offset, 0, bytes);
        return Status::ok;
    }

    bool discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        return !slab.resident && ::madvise(slab.cpu + offset, bytes, MADV_DONTNEED) == 0;
    }

    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override {
        return std::make_unique<HostChannel>(options);
    }

 private:
    // The system would promise more than it has (overcommit) and kill us later: ask first.
    bool charge(std::uint64_t bytes) {
        if (allocated_.fetch_add(bytes) + bytes <= capacity_ &&
            meminfo("MemAvailable") >= bytes + info_.reserve) {
            return true;
        }
        allocated_.fetch_sub(bytes);
        return false;
    }

    DeviceInfo info_;
    std::uint64_t capacity_ = 0;
    std::atomic<std::uint64_t> allocated_{0};
};

}  // namespace

std::unique_ptr<Device> open_host_device(std::uint32_t number, const HostDeviceOptions& options) {
    return std::make_unique<HostDevice>(number, options);
}

}  // namespace gpunbd::storage
