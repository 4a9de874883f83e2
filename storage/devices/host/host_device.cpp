#include "storage/devices/host/host_device.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/base/memory_file.hpp"
#include "storage/base/private_memory.hpp"
#include "storage/devices/channel.hpp"
#include "storage/devices/host/promised_memory.hpp"
#include "storage/devices/host/system_memory.hpp"
#include "storage/devices/store.hpp"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace gpunbd::storage {

namespace {

std::optional<std::string> parse(std::string_view text) {
    return text == "host" ? std::optional<std::string>(text) : std::nullopt;
}

std::string guess(std::string_view text) {
    constexpr std::array<std::string_view, 5> others{"cpu", "ram", "memory", "mem", "localhost"};
    return text == "host" || std::ranges::find(others, text) != others.end() ? "host" : "";
}

class HostDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "host"; }
    bool drives_gpus() const override { return false; }
    config::DriverInfo info() const override {
        return {.form = "host",
                .description = "host",
                .example = "host",
                .parse = parse,
                .guess = guess};
    }
    std::vector<std::string> enumerate(std::string&) const override { return {"host"}; }
    std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                 const DeviceOptions& options) const override {
        if (id != scheme()) return nullptr;
        return open_host_device(number, {.reserve = options.reserve, .capacity = options.capacity});
    }
};

constexpr std::uint64_t default_reserve = 512 << 20;  // bytes
constexpr std::uint64_t huge_page = 2 << 20;          // bytes
// The number of promises that are checked before an allocation fails. There may be thousands of
// them, and refused clients try again.
constexpr std::size_t checks_per_refusal = 64;

class HostDevice final : public Device {
 public:
    HostDevice(std::uint32_t number, const HostDeviceOptions& options)
        : Device(number), system_(options.root) {
        info_.id = "host";
        info_.name = "host memory";
        info_.identity = "host";
        info_.access = "received into and sent from in place";
        info_.total = system_.total();
        if (info_.total == 0) {
            throw std::runtime_error(
                "host: its memory is unknown, because /proc/meminfo cannot be read; mount /proc");
        }
        if (system_.limited()) {
            info_.memory = fmt::format("limited to {} MiB by its control group", info_.total >> 20);
        }
        info_.reserve = options.reserve.value_or(default_reserve);
        info_.capacity = options.capacity;
        // In a control group, memory of the rest of the machine is not available to us, even if it
        // is free.
        capacity_ = info_.size();
    }

    const DeviceInfo& info() const override { return info_; }

    std::uint64_t available() const override {
        for (std::size_t left = promised_.promises(); left != 0; --left) promised_.check_next();
        const std::uint64_t allocated = allocated_.load(std::memory_order_relaxed);
        const std::uint64_t own = capacity_ > allocated ? capacity_ - allocated : 0;
        const std::uint64_t free = beyond_reserve();
        return std::min(own, free - std::min(free, promised_.owed()));
    }

    std::uint64_t free_memory() const override { return system_.available(); }
    bool is_system_memory() const override { return true; }
    bool sends_in_place() const override { return true; }

    std::string reason_not_kept() const override { return {}; }

    Status allocate(const SlabRequest& request, Slab& out) override {
        auto promise = std::make_unique<PromisedMemory::Promise>();
        OwnedFd file;
        if (request.kept && !(file = make_memory_file(request.bytes))) {
            report_unkept(errno);
            return Status::no_space;
        }
        if (!charge(*promise, request.bytes)) {
            if (request.kept) report_lack_of_descriptors(file);
            return Status::no_space;
        }
        std::byte* const base = map(request.bytes, file);
        const bool full = request.provision == Provision::full;
        if (base == nullptr || (full && !populate_all(base, request.bytes, file, *promise))) {
            unmap(base, request.bytes);
            discharge(*promise);
            return Status::no_space;
        }
        promised_.mapped(*promise, base, file);
        out = describe(base, {.bytes = request.bytes, .provision = request.provision},
                       std::move(file));
        out.handle = reinterpret_cast<std::uintptr_t>(promise.release());
        return Status::ok;
    }

    Status take_over(OwnedFd& file, const SlabRecord& record, Slab& out) override {
        std::string reason = memory_file_error(file, record.bytes);
        if (record.kind != 0) reason = fmt::format("its kind, {}, is unknown", record.kind);
        if (!reason.empty()) return refuse(reason);
        auto promise = std::make_unique<PromisedMemory::Promise>();
        std::byte* const base = map(record.bytes, file);
        if (base == nullptr) return refuse("it cannot be mapped");
        allocated_.fetch_add(record.bytes);
        promised_.take_over(*promise, record.bytes, base, file);
        const bool full = record.provision == Provision::full;
        if (full && bytes_in_memory_file(file.get()) < record.bytes &&
            !populate_all(base, record.bytes, file, *promise)) {
            unmap(base, record.bytes);
            discharge(*promise);
            return refuse("it is partly unallocated, and the system has no memory for the rest");
        }
        out = describe(base, record, std::move(file));
        out.handle = reinterpret_cast<std::uintptr_t>(promise.release());
        return Status::ok;
    }

    void release(Slab& slab) noexcept override {
        GPUNBD_ASSERT(slab.handle != 0, "the memory of a slab was promised before it was made");
        const std::unique_ptr<PromisedMemory::Promise> promise(&promise_of(slab));
        discharge(*promise);  // before the slab closes the descriptor that the promise uses
        unmap(slab.cpu, slab.bytes);
        slab = Slab{};
    }

    Status clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        std::memset(slab.cpu + offset, 0, bytes);
        return Status::ok;
    }

    Status copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                std::uint64_t to_offset, std::uint64_t bytes) override {
        store_streaming(to.cpu + to_offset, from.cpu + from_offset, bytes);
        store_fence();
        return Status::ok;
    }

    void populate(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        if (slab.descriptor) take_huge_pages(slab.cpu + offset, bytes);
    }

    bool discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) override {
        GPUNBD_ASSERT(offset + bytes <= slab.bytes, "a page lies within its slab");
        if (slab.resident) return false;
        // MADV_DONTNEED would not free shared memory.
        const bool gone = slab.descriptor ? punch_memory_file(slab.descriptor, offset, bytes)
                                          : ::madvise(slab.cpu + offset, bytes, MADV_DONTNEED) == 0;
        if (!gone) return false;
        promised_.discarded(promise_of(slab), bytes);
        return true;
    }

    std::unique_ptr<Channel> open_channel(const ChannelOptions& options) override {
        return std::make_unique<InPlaceChannel>(options);
    }

 private:
    static PromisedMemory::Promise& promise_of(const Slab& slab) {
        return *reinterpret_cast<PromisedMemory::Promise*>(slab.handle);
    }

    static Slab describe(std::byte* base, const SlabRecord& record, OwnedFd file) {
        return {.cpu = base,
                .address = reinterpret_cast<std::uintptr_t>(base),
                .bytes = record.bytes,
                .resident = record.provision == Provision::full,
                .descriptor = std::move(file)};
    }

    // Aligned to huge pages: maps more and unmaps the edges. Without a file, maps private memory.
    // Returns null on failure.
    static std::byte* map(std::uint64_t bytes, const OwnedFd& file) {
        const bool is_file = static_cast<bool>(file);
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
                              file.get(), 0) == MAP_FAILED) {
            ::munmap(base, bytes);
            return nullptr;
        }
        if (extra != 0) ::madvise(base, bytes, MADV_HUGEPAGE);
        exclude_from_forks(base, bytes);
        return base;
    }
    static void unmap(std::byte* base, std::uint64_t bytes) noexcept {
        if (base != nullptr) ::munmap(base, bytes);
    }

    // Most systems do not use huge pages for memory files unless MADV_COLLAPSE asks for it. Without
    // huge pages, random reads and writes take half as long again, and discarding takes sixty times
    // as long.
    void take_huge_pages(std::byte* at, std::uint64_t bytes) {
        std::byte* const end = at + bytes;
        at += -reinterpret_cast<std::uintptr_t>(at) & (huge_page - 1);
        for (; at < end && huge_page <= static_cast<std::uint64_t>(end - at); at += huge_page) {
            if (!huge_files_.load(std::memory_order_relaxed)) return;
            static_cast<void>(*static_cast<volatile std::byte*>(
                at));  // MADV_COLLAPSE ignores ranges without any page
            // EINVAL: the kernel is older than 6.1, or built without huge pages.
            if (::madvise(at, huge_page, MADV_COLLAPSE) != 0 && errno == EINVAL) {
                huge_files_.store(false, std::memory_order_relaxed);
            }
        }
    }

    // Returns false if the system has not enough memory.
    bool populate_all(std::byte* base, std::uint64_t bytes, const OwnedFd& file,
                      PromisedMemory::Promise& promise) {
        if (file) take_huge_pages(base, bytes);
        if (::madvise(base, bytes, MADV_POPULATE_WRITE) == 0) {
            promised_.given(promise);
            return true;
        }
        return errno == EINVAL;  // EINVAL: kernels before 5.14
    }

    Status refuse(const std::string& reason) const {
        LogLine(spdlog::level::err)
            .with("device", info_.id)
            .log("{}: a kept slab cannot be taken over: {}", info_.id, reason);
        return Status::io_error;
    }
    // Free memory is read from files in /proc. A process without free descriptors seems to have no
    // memory, so check and report the real reason.
    void report_lack_of_descriptors(const OwnedFd& file) {
        if (!OwnedFd::copy_of(file)) report_unkept(errno);
    }
    // Reported once, since callers try again and again.
    void report_unkept(int error) {
        if (unkept_reported_.exchange(true)) return;
        LogLine(spdlog::level::err)
            .with("device", info_.id)
            .log("{}: no slab that outlives the process can be created: {}", info_.id,
                 std::strerror(error));
    }

    std::uint64_t beyond_reserve() const {
        const std::uint64_t free = system_.available();
        return free - std::min(free, info_.reserve);
    }

    // With overcommit, the system would promise more memory than it has, and kill the process
    // later.
    bool charge(PromisedMemory::Promise& promise, std::uint64_t bytes) {
        if (allocated_.fetch_add(bytes) + bytes <= capacity_ && promise_memory(promise, bytes)) {
            return true;
        }
        allocated_.fetch_sub(bytes);
        return false;
    }
    void discharge(PromisedMemory::Promise& promise) noexcept {
        const std::uint64_t allocated = allocated_.fetch_sub(promise.bytes);
        GPUNBD_ASSERT(promise.bytes <= allocated, "memory was charged before it is discharged");
        promised_.drop(promise);
    }

    bool promise_memory(PromisedMemory::Promise& promise, std::uint64_t bytes) {
        const std::uint64_t free = beyond_reserve();
        if (promised_.make(promise, bytes, free)) return true;
        std::size_t left = std::min(promised_.promises(), checks_per_refusal);
        for (; left != 0 && promised_.owed() + bytes > free; --left) promised_.check_next();
        // Memory that was allocated meanwhile is no longer owed, but not free either.
        return promised_.make(promise, bytes, beyond_reserve());
    }

    DeviceInfo info_;
    std::uint64_t capacity_ = 0;
    std::atomic<std::uint64_t> allocated_{0};
    std::atomic<bool> unkept_reported_{false};
    std::atomic<bool> huge_files_{true};  // whether the system makes huge pages of memory files
    const SystemMemory system_;
    mutable PromisedMemory promised_;  // mutable since available() updates it
};

}  // namespace

const DeviceDriver& host_driver() {
    static const HostDriver driver;
    return driver;
}

std::unique_ptr<Device> open_host_device(std::uint32_t number, const HostDeviceOptions& options) {
    return std::make_unique<HostDevice>(number, options);
}

}  // namespace gpunbd::storage
