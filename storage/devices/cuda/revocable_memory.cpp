#include "storage/devices/cuda/revocable_memory.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/base/signals_blocked.hpp"
#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/devices/gpu/managed_path.hpp"
#include "storage/devices/gpu/revocable_slabs.hpp"

namespace gpunbd::storage::cuda {

namespace {

// Memory that the driver moves between GPU and host (cudaMallocManaged). It moves pages to the host
// inside an allocation call of another program that would fail otherwise.

#if CUDART_VERSION >= 13000
cudaMemLocation gpu(int ordinal) { return {cudaMemLocationTypeDevice, ordinal}; }
#else
int gpu(int ordinal) { return ordinal; }
#endif

void* pointer(MemoryRange range) { return reinterpret_cast<void*>(range.address); }

cudaError_t cleared(cudaError_t error) {
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    return error;
}

// An empty text, or the reason why this GPU has none.
const char* reason_not_managed(int ordinal) noexcept {
    int concurrent = 0;
    const cudaError_t error =
        cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, ordinal);
    return cleared(error) == cudaSuccess && concurrent != 0
               ? ""
               : "the driver cannot move memory of this GPU while it is in use";
}

void free_managed(std::uint64_t address) noexcept {
    cleared(cudaFree(reinterpret_cast<void*>(address)));
}

// Its pages are allocated when they are accessed or fetched. They move to the GPU when it accesses
// them, and to the host when the CPU does. The address is the same for both.
cudaError_t allocate_managed(int ordinal, std::uint64_t bytes, MemoryRange& out) noexcept {
    use_device(ordinal);
    void* memory = nullptr;
    const cudaError_t error = cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal);
    if (error != cudaSuccess) return cleared(error);
    out = {.address = reinterpret_cast<std::uintptr_t>(memory), .bytes = bytes};
    const cudaError_t advised =
        cudaMemAdvise(memory, bytes, cudaMemAdviseSetPreferredLocation, gpu(ordinal));
    if (advised != cudaSuccess) free_managed(out.address);
    return cleared(advised);
}

// Moves pages to the GPU, in the order of the stream.
cudaError_t fetch(int ordinal, MemoryRange range, cudaStream_t stream) noexcept {
    use_device(ordinal);
#if CUDART_VERSION >= 13000
    return cleared(cudaMemPrefetchAsync(pointer(range), range.bytes, gpu(ordinal), 0, stream));
#else
    return cleared(cudaMemPrefetchAsync(pointer(range), range.bytes, gpu(ordinal), stream));
#endif
}

// The limits of all devices of this process, since they share the host.
std::atomic<std::uint64_t> promised{0};

// Returns `limit`, if the host and the device can have so much revocable memory.
std::uint64_t checked(std::uint64_t limit, std::uint64_t reserve, int ordinal,
                      const SystemMemory& host) {
    std::string reason = reason_not_managed(ordinal);
    if (reason.empty()) reason = reason_without_managed_path();
    if (!reason.empty()) reason = fmt::format("{}; leave revocable out", reason);
    if (reason.empty()) {
        reason = reason_not_revocable(limit, reserve,
                                      {.available = host.available(),
                                       .reserve = host_reserve_beside_revocable(host.total()),
                                       .promised = promised.load()});
    }
    if (!reason.empty()) throw std::runtime_error(reason);
    return limit;
}

}  // namespace

RevocableMemory::RevocableMemory(DeviceState& state, std::uint64_t limit, std::uint64_t total,
                                 std::uint64_t reserve)
    : state_(state),
      host_("/"),
      limit_(checked(limit, reserve, state.ordinal, host_)),
      stream_(state.ordinal, Stream::Priority::normal),
      watch_(state.id, slabs_, state.revocable_access,
             {.low = low_free_memory(total, reserve),
              .high = reserve,
              .host_reserve = host_reserve_beside_revocable(host_.total())},
             calls(reserve)) {
    const SignalsBlocked blocked;
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    promised.fetch_add(limit_);
}

RevocableMemory::~RevocableMemory() { promised.fetch_sub(limit_); }

bool RevocableMemory::has_room(std::uint64_t bytes) {
    if (slabs_.bytes() + bytes > limit_ || watch_.evicting()) return false;
    const bool is_short = watch_.excess() != 0;
    if (is_short && !std::exchange(shortage_logged_, true)) {
        LogLine(spdlog::level::warn)
            .with("device", state_.id)
            .with("revocable", slabs_.bytes())
            .log(
                "{}: the host has too little free memory for more than {} MiB of revocable "
                "memory: further slabs are not revocable",
                state_.id, slabs_.bytes() >> 20);
    }
    shortage_logged_ = is_short;
    return !is_short;
}

cudaError_t RevocableMemory::allocate(std::uint64_t bytes, std::uint64_t& address) {
    MemoryRange slab;
    cudaError_t error = allocate_managed(state_.ordinal, bytes, slab);
    if (error != cudaSuccess) return error;
    error = fetch(state_.ordinal, slab, stream_.get());
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream_.get());
    if (error != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        free_managed(slab.address);
        return error;
    }
    try {
        slabs_.add(slab);
    } catch (...) {
        free_managed(slab.address);
        throw;
    }
    address = slab.address;
    const Lock lock(mutex_);
    changed_.notify_one();
    return cudaSuccess;
}

void RevocableMemory::free(std::uint64_t address) noexcept {
    slabs_.remove(address);
    free_managed(address);
}

EvictionWatch::Calls RevocableMemory::calls(std::uint64_t reserve) {
    return {.free_memory =
                [reserve] {
                    return free_device_memory().value_or(reserve - 1);  // neither low nor enough
                },
            .host_memory = [this] { return host_.available(); },
            .fetch =
                [this](MemoryRange range) {
                    cudaError_t error = fetch(state_.ordinal, range, stream_.get());
                    if (error == cudaSuccess) error = cudaStreamSynchronize(stream_.get());
                    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
                    log_failure(error);
                    return error == cudaSuccess;
                },
            .now = [] { return EvictionWatch::Clock::now(); }};
}

// A failure costs speed, not contents.
void RevocableMemory::log_failure(cudaError_t error) noexcept {
    if (error == cudaSuccess || std::exchange(failure_logged_, true)) return;
    log_if_possible([&] {
        LogLine(spdlog::level::warn)
            .with("device", state_.id)
            .with("error", to_text(error))
            .log("{}: the driver does not keep revocable memory where it should be: {}", state_.id,
                 to_text(error));
    });
}

void RevocableMemory::watch(const std::stop_token& stop) {
    use_device(state_.ordinal);
    Lock lock(mutex_);
    while (changed_.wait(mutex_, stop, [&] { return slabs_.bytes() != 0 || watch_.evicting(); })) {
        lock.unlock();
        const EvictionWatch::Clock::duration pause = watch_.step();
        lock.lock();
        if (state_.failed()) break;
        changed_.wait_for(mutex_, stop, pause, [] { return false; });
    }
    watch_.stop();
}

}  // namespace gpunbd::storage::cuda
