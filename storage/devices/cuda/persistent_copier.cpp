#include "storage/devices/cuda/persistent_copier.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/store.hpp"

namespace gpunbd::storage::cuda {

namespace {

// Ends it in a steady stream of work, too: what a call that waits for the whole device may wait.
constexpr std::chrono::milliseconds lifetime(5);
constexpr std::size_t state_bytes = 256;
static_assert(sizeof(PersistentKernelState) <= state_bytes);

std::uint64_t in_ns(std::chrono::nanoseconds duration) {
    return static_cast<std::uint64_t>(duration.count());
}

std::uint32_t load(const std::uint32_t& word) {
    // The GPU writes it; atomic_ref wants what it could write to.
    return std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_acquire);
}

}  // namespace

PersistentCopier::PersistentCopier(int ordinal, int numa_node, std::uint32_t blocks,
                                   MailboxMemory mailbox)
    : ordinal_(ordinal),
      blocks_(blocks),
      mailbox_(std::move(mailbox)),
      outcome_memory_(ordinal, sizeof(Outcome), numa_node),
      state_memory_(ordinal, state_bytes),
      stream_(ordinal, Stream::Priority::high),
      outcome_(new(outcome_memory_.get()) Outcome{}),
      state_(reinterpret_cast<PersistentKernelState*>(state_memory_.get())) {}

const Copy* PersistentCopier::oldest() const {
    for (std::uint32_t unit = first_; unit != next_; ++unit) {
        if (const Copy* copy = copies_[unit % mailbox_places]; copy != nullptr) return copy;
    }
    return nullptr;
}

cudaError_t PersistentCopier::warm_up() {
    const cudaError_t error = launch();
    return error == cudaSuccess ? cudaStreamSynchronize(stream_.get()) : error;
}

void PersistentCopier::add(Copy& copy) {
    auto* const device = reinterpret_cast<std::byte*>(copy.address);
    for (std::uint32_t at = 0; at < copy.length; at += copy_unit_bytes) {
        const bool reads = copy.kind == Copy::Kind::read;
        std::byte* const host = copy.staging == nullptr ? nullptr : copy.staging + at;
        std::byte* const from = reads ? device + at : host;
        std::byte* const to = reads ? host : device + at;
        const Mailbox::Place place{.from = reinterpret_cast<std::uintptr_t>(from),
                                   .to = reinterpret_cast<std::uintptr_t>(to),
                                   .length = std::min(copy.length - at, copy_unit_bytes),
                                   .unused = {},
                                   .number = next_ + 1};
        std::memcpy(&mailbox_.cpu->places[next_ % mailbox_places], &place, sizeof place);
        copies_[next_ % mailbox_places] = nullptr;
        ++next_;
    }
    copies_[(next_ - 1) % mailbox_places] = &copy;
}

cudaError_t PersistentCopier::post() {
    if (posted_ == next_) return cudaSuccess;
    posted_ = next_;
    store_fence();  // the units, and whatever the CPU stored into the mapping, before their count
    *static_cast<volatile std::uint32_t*>(&mailbox_.cpu->posted) = posted_;
    store_fence();
    return keep_alive();
}

bool PersistentCopier::running() const { return load(outcome_->ended) != launched_; }

cudaError_t PersistentCopier::keep_alive() { return idle() || running() ? cudaSuccess : launch(); }

cudaError_t PersistentCopier::launch() {
    use_device(ordinal_);
    const cudaError_t error =
        launch_persistent_kernel(mailbox_.device, outcome_, state_, blocks_, launched_ + 1,
                                 in_ns(linger), in_ns(lifetime), stream_.get());
    if (error == cudaSuccess) ++launched_;
    return error;
}

Copy* PersistentCopier::take_ended() {
    while (first_ != posted_ && load(outcome_->served[first_ % mailbox_places]) == first_ + 1) {
        Copy* const copy = copies_[first_++ % mailbox_places];
        if (copy != nullptr) return copy;
    }
    return nullptr;
}

Copy* PersistentCopier::take_any() {
    while (first_ != next_) {
        Copy* const copy = copies_[first_++ % mailbox_places];
        if (copy != nullptr) return copy;
    }
    return nullptr;
}

}  // namespace gpunbd::storage::cuda
