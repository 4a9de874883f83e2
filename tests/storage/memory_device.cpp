#include "tests/storage/memory_device.hpp"

#include <sys/mman.h>

#include "storage/base/memory_file.hpp"
#include "storage/devices/host/host_device.hpp"
#include "tests/test.hpp"

namespace gpunbd::storage::test {

namespace {

constexpr std::uint64_t stored = 256 << 10;  // bytes; longer ranges are zeroed by remapping

// Another thread may be reading a page that is taken back.
void zero(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) {
    std::byte* const at = slab.cpu + offset;
    if (bytes <= stored) {
        for (std::uint64_t i = 0; i != bytes; i += 8) {
            std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at + i))
                .store(0, std::memory_order_relaxed);
        }
    } else if (slab.descriptor) {
        REQUIRE(punch_memory_file(slab.descriptor, offset, bytes));
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
    info_.identity = info_.id;
}

MemoryDevice::~MemoryDevice() {
    CHECK(slabs_.empty());
    CHECK_FALSE(releases().pending());
}

std::uint64_t MemoryDevice::available() const {
    const std::lock_guard lock(mutex_);
    return capacity_ > used_ ? capacity_ - used_ : 0;
}

Status MemoryDevice::allocate(const SlabRequest& request, Slab& out) {
    if (allocates) allocates();
    const std::lock_guard lock(mutex_);
    CHECK(request.bytes != 0);
    if (used_ + request.bytes > capacity_) return Status::no_space;
    OwnedFd descriptor;
    if (request.kept && !(descriptor = make_memory_file(request.bytes))) return Status::no_space;
    return add(descriptor, {.bytes = request.bytes, .provision = request.provision}, out);
}

Status MemoryDevice::take_over(OwnedFd& descriptor, const SlabRecord& record, Slab& out) {
    const std::lock_guard lock(mutex_);
    if (record.kind != 0 || !memory_file_error(descriptor, record.bytes).empty()) {
        return Status::io_error;
    }
    return add(descriptor, record, out);
}

Status MemoryDevice::add(OwnedFd& descriptor, const SlabRecord& record, Slab& out) {
    std::map<std::byte*, std::uint64_t> one{
        {nullptr, record.bytes}};  // allocate first, since it may throw
    const int flags = descriptor ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const mapped =
        ::mmap(nullptr, record.bytes, PROT_READ | PROT_WRITE, flags, descriptor.get(), 0);
    REQUIRE(mapped != MAP_FAILED);
    auto* const base = static_cast<std::byte*>(mapped);
    used_ += record.bytes;
    auto node = one.extract(one.begin());
    node.key() = base;
    slabs_.insert(std::move(node));
    out = {.cpu = base,
           .address = reinterpret_cast<std::uintptr_t>(base),
           .bytes = record.bytes,
           .resident = record.provision == Provision::full,
           .descriptor = std::move(descriptor)};
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
    zero(slab, offset, bytes);
    return Status::ok;
}

// A clone may copy a page that is being written.
Status MemoryDevice::copy(const Slab& from, std::uint64_t from_offset, const Slab& to,
                          std::uint64_t to_offset, std::uint64_t bytes) {
    ++copies;
    const auto word = [](const Slab& slab, std::uint64_t at) {
        return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(slab.cpu + at));
    };
    for (std::uint64_t i = 0; i != bytes; i += 8) {
        const std::uint64_t value = word(from, from_offset + i).load(std::memory_order_relaxed);
        word(to, to_offset + i).store(value, std::memory_order_relaxed);
    }
    return Status::ok;
}

bool MemoryDevice::discard(const Slab& slab, std::uint64_t offset, std::uint64_t bytes) {
    if (!discards_ || slab.resident) return false;
    zero(slab, offset, bytes);
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
