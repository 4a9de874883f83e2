#include "tests/storage/memory_device.hpp"

#include <sys/mman.h>

#include <doctest/doctest.h>

#include <atomic>
#include <utility>

#include "storage/devices/host/host_device.hpp"

namespace gpunbd::storage::test {

namespace {

constexpr std::uint64_t stored = 256 << 10;  // bytes; longer ranges are zeroed by remapping

// Others may look on: who holds a page while it is taken back.
void zero(std::byte* at, std::uint64_t bytes) {
    if (bytes <= stored) {
        for (std::uint64_t i = 0; i != bytes; i += 8) {
            std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at + i))
                .store(0, std::memory_order_relaxed);
        }
    } else {
        REQUIRE(::madvise(at, bytes, MADV_DONTNEED) == 0);
    }
}

}  // namespace

MemoryDevice::MemoryDevice(std::uint32_t number, const Options& options)
    : Device(number),
      discards_(options.discards),
      slow_(options.slow),
      capacity_(options.capacity) {
    info_.id = "memory:" + std::to_string(number);
}

MemoryDevice::~MemoryDevice() { CHECK(slabs_.empty()); }

std::uint64_t MemoryDevice::available() const {
    const std::lock_guard lock(mutex_);
    return capacity_ > used_ ? capacity_ - used_ : 0;
}

Status MemoryDevice::allocate(std::uint64_t bytes, Provision provision, Slab& out) {
    const std::lock_guard lock(mutex_);
    CHECK(bytes != 0);
    if (used_ + bytes > capacity_) return Status::no_space;
    std::map<std::byte*, std::uint64_t> one{{nullptr, bytes}};  // what can fail comes first
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    auto* const base = static_cast<std::byte*>(mapped);
    used_ += bytes;
    auto node = one.extract(one.begin());
    node.key() = base;
    slabs_.insert(std::move(node));
    out = {.cpu = base,
           .address = reinterpret_cast<std::uintptr_t>(base),
           .bytes = bytes,
           .resident = provision == Provision::full};
    return Status::ok;
}

void MemoryDevice::release(Slab& slab) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = slabs_.find(slab.cpu);
    const bool known = found != slabs_.end() && found->second == slab.bytes;
    CHECK(known);
    if (!known) return;
    ::munmap(slab.cpu, slab.bytes);
    used_ -= slab.bytes;
    slabs_.erase(found);
    slab = Slab{};
}

Status MemoryDevice::clear(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) {
    ++clears;
    if (clears_fail) return Status::io_error;
    zero(slab.cpu + offset, bytes);
    return Status::ok;
}

bool MemoryDevice::discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) {
    if (!discards_ || slab.resident) return false;
    zero(slab.cpu + offset, bytes);
    return true;
}

std::unique_ptr<Channel> MemoryDevice::open_channel(const ChannelOptions& options) {
    return open_host_device(number(), {})->open_channel(options);
}

std::uint64_t MemoryDevice::used() const {
    const std::lock_guard lock(mutex_);
    return used_;
}

std::uint64_t MemoryDevice::slabs() const {
    const std::lock_guard lock(mutex_);
    return slabs_.size();
}

void MemoryDevice::set_capacity(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    capacity_ = bytes;
}

}  // namespace gpunbd::storage::test
