#include "storage/devices/host/host_device.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "storage/devices/host/memory_file.hpp"
#include "storage/devices/host/promised_memory.hpp"
#include "storage/devices/host/system_memory.hpp"
#include "storage/log_line.hpp"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

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
            count(PathKind::mapping, copy);
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
        info_.identity = "host";
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

    std::string why_not_kept() const override { return {}; }

    Status allocate(const SlabRequest& request, Slab& out) override {
        auto promise = std::make_unique<PromisedMemory::Promise>();
        int descriptor = -1;
        if (request.kept && (descriptor = make_memory_file(request.bytes)) < 0) {
            report_unkept(errno);
            return Status::no_space;
        }
        if (!charge(*promise, request.bytes)) {
            if (request.kept) close_refused(descriptor);
            return Status::no_space;
        }
        std::byte* const base = map(request.bytes, descriptor);
        const bool full = request.provision == Provision::full;
        if (base == nullptr || (full && !populate_all(base, request.bytes, descriptor, *promise))) {
            unmap(base, request.bytes, descriptor);
            discharge(*promise);
            return Status::no_space;
        }
        promised_.mapped(*promise, base, descriptor);
        out = describe(base, {.bytes = request.bytes, .provision = request.provision}, descriptor);
        out.handle = reinterpret_cast<std::uintptr_t>(promise.release());
        return Status::ok;
    }

    Status adopt(int descriptor, const SlabRecord& record, Slab& out) override {
        std::string why_not = why_no_memory_file(descriptor, record.bytes);
        if (record.kind != 0) why_not = fmt::format("its kind, {}, is unknown", record.kind);
        if (!why_not.empty()) return refuse(why_not);
        auto promise = std::make_unique<PromisedMemory::Promise>();
        std::byte* const base = map(record.bytes, descriptor);
        if (base == nullptr) return refuse("it cannot be mapped");
        allocated_.fetch_add(record.bytes);
        promised_.take_over(*promise, record.bytes, base, descriptor);
        const bool full = record.provision == Provision::full;
        if (full && bytes_in_memory_file(descriptor) < record.bytes &&
            !populate_all(base, record.bytes, descriptor, *promise)) {
            ::munmap(base, record.bytes);
            discharge(*promise);
            return refuse("not all of it is there, and the system has no memory for the rest");
        }
        out = describe(base, record, descriptor);
        out.handle = reinterpret_cast<std::uintptr_t>(promise.release());
        return Status::ok;
    }

    void release(Slab& slab) noexcept override {
        const std::unique_ptr<PromisedMemory::Promise> promise(&promise_of(slab));
        discharge(*promise);  // which looks at the descriptor no more
        unmap(slab.cpu, slab.bytes, slab.descriptor);
        slab = Slab{};
    }

    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        std::memset(slab.cpu + offset, 0, bytes);
        return Status::ok;
    }

    void populate(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        if (slab.descriptor >= 0) take_huge_pages(slab.cpu + offset, bytes);
    }

    bool discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        if (slab.resident) return false;
        // Shared memory would keep what it has behind MADV_DONTNEED.
        const bool gone = slab.descriptor >= 0
                              ? punch_memory_file(slab.descriptor, offset, bytes)
                              : ::madvise(slab.cpu + offset, bytes, MADV_DONTNEED) == 0;
        if (!gone) return false;
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

    static Slab describe(std::byte* base, const SlabRecord& record, int descriptor) {
        return {.cpu = base,
                .address = reinterpret_cast<std::uintptr_t>(base),
                .bytes = record.bytes,
                .resident = record.provision == Provision::full,
                .descriptor = descriptor};
    }

    // Aligned to huge pages: maps more, and gives the edges back. Null: the system refuses. The
    // memory file with that descriptor; -1: private memory.
    static std::byte* map(std::uint64_t bytes, int descriptor) {
        const bool is_file = descriptor >= 0;
        const std::size_t extra = bytes >= huge_page ? huge_page : 0;
        void* const mapped =
            ::mmap(nullptr, bytes + extra, is_file ? PROT_NONE : PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) return nullptr;
        auto* base = static_cast<std::byte*>(mapped);
        if (extra != 0) {
            const std::size_t head = -reinterpret_cast<std::uintptr_t>(base) & (huge_page - 1);
            if (head != 0) ::munmap(base, head);
            if (head != extra) ::munmap(base + head + bytes, extra - head);
            base += head;
        }
        if (is_file && ::mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                              descriptor, 0) == MAP_FAILED) {
            ::munmap(base, bytes);
            return nullptr;
        }
        if (extra != 0) ::madvise(base, bytes, MADV_HUGEPAGE);
        return base;
    }
    static void unmap(std::byte* base, std::uint64_t bytes, int descriptor) noexcept {
        if (base != nullptr) ::munmap(base, bytes);
        if (descriptor >= 0) ::close(descriptor);
    }

    // Systems give huge pages to private memory that asks for them, but hardly any does to memory
    // files, unless it is told to put together what is there. Without, what a client reads and
    // writes at random costs half as much again, and to discard it sixty times as much.
    void take_huge_pages(std::byte* at, std::uint64_t bytes) {
        std::byte* const end = at + bytes;
        at += -reinterpret_cast<std::uintptr_t>(at) & (huge_page - 1);
        for (; at < end && huge_page <= static_cast<std::uint64_t>(end - at); at += huge_page) {
            if (!huge_files_.load(std::memory_order_relaxed)) return;
            static_cast<void>(*static_cast<volatile std::byte*>(at));  // of nothing none is made
            // EINVAL: a kernel before 6.1, or one that is not to have any.
            if (::madvise(at, huge_page, MADV_COLLAPSE) != 0 && errno == EINVAL) {
                huge_files_.store(false, std::memory_order_relaxed);
            }
        }
    }

    // False: the system has not so much.
    bool populate_all(std::byte* base, std::uint64_t bytes, int descriptor,
                      PromisedMemory::Promise& promise) {
        if (descriptor >= 0) take_huge_pages(base, bytes);
        if (::madvise(base, bytes, MADV_POPULATE_WRITE) == 0) {
            promised_.given(promise);
            return true;
        }
        return errno == EINVAL;  // a kernel before 5.14
    }

    Status refuse(const std::string& why) const {
        LogLine(spdlog::level::err)
            .with("device", info_.id)
            .say("{}: a kept slab is not taken over: {}", info_.id, why);
        return Status::io_error;
    }
    // Without a descriptor left the system cannot be asked what memory it has, and seems to have
    // none.
    void close_refused(int descriptor) {
        const int another = ::dup(descriptor);
        if (another < 0) report_unkept(errno);
        if (another >= 0) ::close(another);
        ::close(descriptor);
    }
    // Whoever wants one asks again and again.
    void report_unkept(int error) {
        if (unkept_reported_.exchange(true)) return;
        LogLine(spdlog::level::err)
            .with("device", info_.id)
            .say("{}: no slab can be made that outlives the process: {}", info_.id,
                 std::strerror(error));
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
    std::atomic<bool> unkept_reported_{false};
    std::atomic<bool> huge_files_{true};  // does the system make huge pages of memory files?
    const SystemMemory system_;
    mutable PromisedMemory promised_;  // looking is no change
};

}  // namespace

std::unique_ptr<Device> open_host_device(std::uint32_t number, const HostDeviceOptions& options) {
    return std::make_unique<HostDevice>(number, options);
}

}  // namespace gpunbd::storage
