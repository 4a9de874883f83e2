#include "storage/devices/cuda/persistent_kernel_path.hpp"

#include <cstring>
#include <new>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/devices/gpu/copy_path.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage::cuda {

namespace {

// Also limits how long a call that waits for the whole device is delayed by continuous work.
constexpr std::chrono::milliseconds lifetime(5);
constexpr std::size_t state_bytes = 256;
static_assert(sizeof(PersistentKernelState) <= state_bytes);
constexpr std::uint32_t max_units = mailbox_slots / 2;  // of one copy, so that at least two fit

std::uint64_t in_ns(std::chrono::nanoseconds duration) {
    return static_cast<std::uint64_t>(duration.count());
}

std::uint32_t load(const std::uint32_t& word) {
    // Written by the GPU; atomic_ref requires a non-const reference.
    return std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_acquire);
}

bool take_one_of(std::atomic<std::int32_t>& slots) {
    if (slots.fetch_sub(1) > 0) return true;
    slots.fetch_add(1);
    return false;
}

}  // namespace

PersistentKernelPath::Slot::Slot(std::atomic<std::int32_t>& slots)
    : slots_(slots), taken_(take_one_of(slots)) {}

PersistentKernelPath::Slot::~Slot() {
    if (taken_) slots_.fetch_add(1);
}

PersistentKernelPath::PersistentKernelPath(DeviceState& state, MailboxMemory mailbox)
    : LingeringPath(0),
      state_(state),
      slot_(state.persistent_kernel_slots),
      mailbox_(std::move(mailbox)),
      outcome_memory_(state.ordinal, sizeof(Outcome), state.numa_node),
      kernel_state_memory_(state.ordinal, state_bytes),
      stream_(state.ordinal, Stream::Priority::high),
      outcome_(new(outcome_memory_.get()) Outcome{}),
      kernel_state_(reinterpret_cast<PersistentKernelState*>(kernel_state_memory_.get())) {
    if (slot_.taken()) longest_ = max_units * copy_unit_bytes;
}

void PersistentKernelPath::warm_up() {
    if (!slot_.taken()) return;
    constexpr const char* trouble = "the persistent kernel does not work";
    check(start(), trouble);
    check(cudaStreamSynchronize(stream_.get()), trouble);
}

bool PersistentKernelPath::has_room(const Copy& copy) {
    return units_of(copy) <= mailbox_slots - (next_ - first_);
}

bool PersistentKernelPath::add(Copy& copy) {
    GPUNBD_ASSERT(units_of(copy) <= mailbox_slots - (next_ - first_),
                  "a copy is added after has_room() was true");
    cut_into_units(copy, [&](const CopyUnit& unit) {
        const Mailbox::Slot slot{.from = reinterpret_cast<std::uintptr_t>(unit.from),
                                 .to = reinterpret_cast<std::uintptr_t>(unit.to),
                                 .length = unit.length,
                                 .unused = {},
                                 .number = next_ + 1};
        std::memcpy(&mailbox_.cpu->slots[next_ % mailbox_slots], &slot, sizeof slot);
        copies_[next_ % mailbox_slots] = nullptr;
        ++next_;
    });
    copies_[(next_ - 1) % mailbox_slots] = &copy;
    return false;
}

void PersistentKernelPath::submit() {
    if (posted_ == next_) return;
    posted_ = next_;
    store_fence();  // the units, and stores into the mapping, become visible before their count
    *static_cast<volatile std::uint32_t*>(&mailbox_.cpu->posted) = posted_;
    store_fence();
    keep_alive();
}

bool PersistentKernelPath::take_ended(CopyQueue& ended) {
    while (first_ != posted_ && load(outcome_->served[first_ % mailbox_slots]) == first_ + 1) {
        Copy* const copy = copies_[first_++ % mailbox_slots];
        if (copy == nullptr) continue;
        ended.push(*copy);
        return true;
    }
    keep_alive();
    return false;
}

void PersistentKernelPath::take_all(CopyQueue& all) {
    for (; first_ != next_; ++first_) {
        if (Copy* const copy = copies_[first_ % mailbox_slots]; copy != nullptr) all.push(*copy);
    }
}

void PersistentKernelPath::check_errors() { ask(state_, stream_.get(), oldest()); }

const Copy* PersistentKernelPath::oldest() const {
    for (std::uint32_t unit = first_; unit != next_; ++unit) {
        if (const Copy* copy = copies_[unit % mailbox_slots]; copy != nullptr) return copy;
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
    wake_pending_ = std::chrono::steady_clock::now() - last_bypass_end_ < linger;
}

void PersistentKernelPath::wake() {
    last_bypass_end_ = std::chrono::steady_clock::now();
    const bool pending = std::exchange(wake_pending_, false);
    if (pending && !running() && state_.competition.kernels_allowed()) launch();
}

}  // namespace gpunbd::storage::cuda
