#include "storage/devices/cuda/kernel_path.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/devices/cuda/copy_kernel.hpp"
#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/devices/gpu/copy_path.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::size_t probe_line = 64;  // bytes: the word, followed by the destination of the probe
constexpr std::size_t counter_bytes = 256;

}  // namespace

KernelProbe::KernelProbe(DeviceState& state)
    : state_(state),
      word_(state.ordinal, 2 * probe_line, state.numa_node),
      scratch_(state.ordinal, 2 * counter_bytes),
      stream_(state.ordinal, Stream::Priority::high) {}

bool KernelProbe::launch() {
    use_device(state_.ordinal);
    CopyUnit units[max_copy_units] = {};
    units[0] = {
        .from = scratch_.get() + counter_bytes, .to = word_.get() + probe_line, .length = 16};
    return launch_copy_kernel(units, 1, reinterpret_cast<std::uint32_t*>(scratch_.get()),
                              reinterpret_cast<std::uint32_t*>(word_.get()), ++number_,
                              stream_.get()) == cudaSuccess;
}

bool KernelProbe::ended() const {
    auto* const word = reinterpret_cast<std::uint32_t*>(word_.get());
    return std::atomic_ref(*word).load(std::memory_order_acquire) == number_;
}

KernelPath::KernelPath(DeviceState& state, const std::array<std::uint32_t*, streams>& words,
                       std::byte* counters)
    : CopyPath(max_copy_units * copy_unit_bytes),
      state_(state),
      counters_(counters),
      streams_{StreamCounter(state.ordinal, Stream::Priority::high, words[0]),
               StreamCounter(state.ordinal, Stream::Priority::high, words[1]),
               StreamCounter(state.ordinal, Stream::Priority::high, words[2]),
               StreamCounter(state.ordinal, Stream::Priority::high, words[3])} {}

void KernelPath::warm_up(const std::byte* from, std::byte* to) {
    CopyQueue none;
    batch_.units.fill({.from = from, .to = to, .length = 16});
    for (StreamCounter& stream : streams_) {
        for (const std::uint32_t count : {1U, 32U, max_copy_units}) {
            batch_.stream = &stream;
            batch_.count = count;
            launch();
            check(cudaStreamSynchronize(stream.stream()), "kernels do not work");
            stream.take_ended(none);
        }
    }
}

bool KernelPath::has_room(const Copy& copy) {
    if (batch_.stream != nullptr && batch_.count + units_of(copy) > max_copy_units) launch();
    if (batch_.stream == nullptr) batch_.stream = free_stream();
    return batch_.stream != nullptr;
}

// The stream with the least work, or null: batches then grow until one has ended.
StreamCounter* KernelPath::free_stream() {
    const auto least = std::min_element(streams_.begin(), streams_.end(),
                                        [](const StreamCounter& a, const StreamCounter& b) {
                                            return a.in_flight() < b.in_flight();
                                        });
    return least->in_flight() < launches_per_stream ? &*least : nullptr;
}

bool KernelPath::add(Copy& copy) {
    GPUNBD_ASSERT(batch_.stream != nullptr && batch_.count + units_of(copy) <= max_copy_units,
                  "a copy is added after has_room() was true");
    batch_.stream->open().push(copy);
    cut_into_units(copy, [&](const CopyUnit& unit) { batch_.units[batch_.count++] = unit; });
    return false;
}

void KernelPath::submit() {
    if (batch_.stream != nullptr) launch();
}

void KernelPath::launch() {
    use_device(state_.ordinal);
    GPUNBD_ASSERT(batch_.stream != nullptr && batch_.count <= max_copy_units,
                  "a launch has a stream, and not more units than fit");
    StreamCounter& stream = *std::exchange(batch_.stream, nullptr);
    const std::uint32_t count = std::exchange(batch_.count, 0);
    const auto index = static_cast<std::size_t>(&stream - streams_.data());
    auto* const blocks_done =
        reinterpret_cast<std::uint32_t*>(counters_ + index * (counters_bytes / streams));
    const cudaError_t error = launch_copy_kernel(batch_.units.data(), count, blocks_done,
                                                 stream.word(), stream.number(), stream.stream());
    if (error == cudaSuccess) {
        stream.close();
        return;
    }
    CopyQueue refused = std::exchange(stream.open(), CopyQueue{});
    while (Copy* copy = refused.pop()) {
        refuse(*copy, error, state_, stream.stream());
        refused_.push(*copy);
    }
}

bool KernelPath::take_ended(CopyQueue& ended) {
    if (!refused_.empty()) {
        ended = std::exchange(refused_, CopyQueue{});
        return true;
    }
    return std::any_of(streams_.begin(), streams_.end(),
                       [&](StreamCounter& stream) { return stream.take_ended(ended); });
}

bool KernelPath::idle() const {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const StreamCounter& stream) { return stream.idle(); });
}

void KernelPath::check_errors() {
    for (const StreamCounter& stream : streams_) ask(state_, stream.stream(), stream.oldest());
}

void KernelPath::take_all(CopyQueue& all) {
    while (Copy* copy = refused_.pop()) all.push(*copy);
    for (StreamCounter& stream : streams_) stream.take_all(all);
}

}  // namespace gpunbd::storage::cuda
