#include "storage/devices/cuda/persistent_kernel_path.hpp"

#include <cstring>
#include <new>
#include <utility>

#include "storage/devices/cuda/copy_errors.hpp"
#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/devices/gpu/units_of_copy.hpp"
#include "storage/store.hpp"

namespace gpunbd::storage::cuda {

namespace {

// Ends it in a steady stream of work, too: what a call that waits for the whole device may wait.
constexpr std::chrono::milliseconds lifetime(5);
constexpr std::size_t state_bytes = 256;
static_assert(sizeof(PersistentKernelState) <= state_bytes);
constexpr std::uint32_t max_units = mailbox_places / 2;  // of one copy: two are in flight at least

std::uint64_t in_ns(std::chrono::nanoseconds duration) {
    return static_cast<std::uint64_t>(duration.count());
}

std::uint32_t load(const std::uint32_t& word) {
    // The GPU writes it; atomic_ref wants what it could write to.
    return std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_acquire);
}

bool take_one_of(std::atomic<std::int32_t>& places) {
    if (places.fetch_sub(1) > 0) return true;
    places.fetch_add(1);
    return false;
}

}  // namespace

PersistentKernelPath::Place::Place(std::atomic<std::int32_t>& places)
    : places_(places), taken_(take_one_of(places)) {}

PersistentKernelPath::Place::~Place() {
    if (taken_) places_.fetch_add(1);
}

PersistentKernelPath::PersistentKernelPath(DeviceState& state, MailboxMemory mailbox)
    : LingeringPath(0),
      state_(state),
      place_(state.persistent_kernel_places),
      mailbox_(std::move(mailbox)),
      outcome_memory_(state.ordinal, sizeof(Outcome), state.numa_node),
      kernel_state_memory_(state.ordinal, state_bytes),
      stream_(state.ordinal, Stream::Priority::high),
      outcome_(new(outcome_memory_.get()) Outcome{}),
      kernel_state_(reinterpret_cast<PersistentKernelState*>(kernel_state_memory_.get())) {
    if (place_.taken()) longest_ = max_units * copy_unit_bytes;
}

void PersistentKernelPath::warm_up() {
    if (!place_.taken()) return;
    constexpr const char* trouble = "the persistent kernel does not work";
    check(start(), trouble);
    check(cudaStreamSynchronize(stream_.get()), trouble);
}

bool PersistentKernelPath::has_place(const Copy& copy) {
    return units_of(copy) <= mailbox_places - (next_ - first_);
}

bool PersistentKernelPath::add(Copy& copy) {
    cut_into_units(copy, [&](const CopyUnit& unit) {
        const Mailbox::Place place{.from = reinterpret_cast<std::uintptr_t>(unit.from),
                                   .to = reinterpret_cast<std::uintptr_t>(unit.to),
                                   .length = unit.length,
                                   .unused = {},
                                   .number = next_ + 1};
        std::memcpy(&mailbox_.cpu->places[next_ % mailbox_places], &place, sizeof place);
        copies_[next_ % mailbox_places] = nullptr;
        ++next_;
    });
    copies_[(next_ - 1) % mailbox_places] = &copy;
    return false;
}

void PersistentKernelPath::submit() {
    if (posted_ == next_) return;
    posted_ = next_;
    store_fence();  // the units, and whatever the CPU stored into the mapping, before their count
    *static_cast<volatile std::uint32_t*>(&mailbox_.cpu->posted) = posted_;
    store_fence();
    keep_alive();
}

bool PersistentKernelPath::take_ended(CopyQueue& ended) {
    while (first_ != posted_ && load(outcome_->served[first_ % mailbox_places]) == first_ + 1) {
        Copy* const copy = copies_[first_++ % mailbox_places];
        if (copy == nullptr) continue;
        ended.push(*copy);
        return true;
    }
    keep_alive();
    return false;
}

void PersistentKernelPath::take_all(CopyQueue& all) {
    for (; first_ != next_; ++first_) {
        if (Copy* const copy = copies_[first_ % mailbox_places]; copy != nullptr) all.push(*copy);
    }
}

void PersistentKernelPath::look_for_errors() { ask(state_, stream_.get(), oldest()); }

const Copy* PersistentKernelPath::oldest() const {
    for (std::uint32_t unit = first_; unit != next_; ++unit) {
        if (const Copy* copy = copies_[unit % mailbox_places]; copy != nullptr) return copy;
    }
    return nullptr;
}

// --- the kernel's life ---------------------------------------------------------------------------

bool PersistentKernelPath::running() const { return load(outcome_->ended) != launched_; }

void PersistentKernelPath::keep_alive() {
    if (!idle() && !running()) launch();
}

void PersistentKernelPath::launch() {
    const cudaError_t error = start();
    if (error == cudaSuccess) return;
    const Copy* const first = oldest();
    state_.fail(cuda::to_text(error), first == nullptr ? "a launch" : to_text(*first));
}

cudaError_t PersistentKernelPath::start() {
    use_device(state_.ordinal);
    const cudaError_t error = launch_persistent_kernel(
        mailbox_.device, outcome_, kernel_state_, state_.persistent_kernel_blocks, launched_ + 1,
        in_ns(linger), in_ns(lifetime), stream_.get());
    if (error == cudaSuccess) ++launched_;
    return error;
}

void PersistentKernelPath::pass_by() {
    wakes_ = std::chrono::steady_clock::now() - passed_by_ < linger;
}

void PersistentKernelPath::wake() {
    passed_by_ = std::chrono::steady_clock::now();
    const bool wakes = std::exchange(wakes_, false);
    if (wakes && !running() && state_.competition.kernels_allowed()) launch();
}

}  // namespace gpunbd::storage::cuda
