#include "storage/devices/cuda/engine_streams.hpp"

#include <fmt/format.h>

#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

void EngineBatch::add(const Copy& copy, const std::byte* zeroes) {
    GPUNBD_ASSERT(!full(), "a batch is started when it is full");
    const auto device = static_cast<CUdeviceptr>(copy.address);
    const auto host =
        reinterpret_cast<CUdeviceptr>(copy.kind == Copy::Kind::zero ? zeroes : copy.staging);
    to_[count_] = copy.kind == Copy::Kind::read ? host : device;
    from_[count_] = copy.kind == Copy::Kind::read ? device : host;
    lengths_[count_++] = copy.length;
}

CUresult EngineBatch::start(DeviceState::MemcpyBatch call, cudaStream_t stream) {
    GPUNBD_ASSERT(!empty(), "a call has a copy");
    const std::size_t count = std::exchange(count_, 0);
#if CUDART_VERSION >= 12080
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    std::size_t first = 0;
    std::size_t failed = 0;
    return call(to_.data(), from_.data(), lengths_.data(), count, &attributes, &first, 1, &failed,
                stream);
#else
    static_cast<void>(call), static_cast<void>(stream), static_cast<void>(count);
    return CUDA_ERROR_NOT_SUPPORTED;
#endif
}

EngineStream::EngineStream(DeviceState& state, std::uint32_t* word)
    : state_(state), counter_(state.ordinal, Stream::Priority::normal, word) {}

EngineStream::~EngineStream() {
    state_.engine_copies.fetch_sub(static_cast<std::int32_t>(counter_.in_flight()),
                                   std::memory_order_relaxed);
}

void EngineStream::add_to_batch(Copy& copy) {
    add(copy);
    batch_.add(copy, state_.zeroes.get());
}

void EngineStream::added(std::uint32_t bytes, std::uint32_t enough) {
    GPUNBD_ASSERT(!counter_.open().empty(), "a copy is in the open group before it is counted");
    open_bytes_ += bytes;
    if (batch_.full() || open_bytes_ >= enough) close();
}

void EngineStream::close() {
    if (open_bytes_ == 0) return;
    if (!batch_.empty()) start_batch();
    open_bytes_ = 0;
    const CUresult result =
        state_.write_value(stream(), reinterpret_cast<CUdeviceptr>(counter_.word()),
                           counter_.number(), CU_STREAM_WRITE_VALUE_DEFAULT);
    counter_.close();
    state_.engine_copies.fetch_add(1, std::memory_order_relaxed);
    if (result != CUDA_SUCCESS) {
        // Without the completion word, the end of these copies cannot be seen.
        state_.fail(fmt::format("driver error {}", static_cast<int>(result)),
                    "the submission of copies");
    }
}

void EngineStream::start_batch() {
    use_device(state_.ordinal);
    const CUresult result = batch_.start(state_.memcpy_batch, stream());
    if (result == CUDA_SUCCESS) return;
    // It is unknown which copies were started, so all of them have failed. They end with the word.
    for (Copy* copy = counter_.open().front(); copy != nullptr; copy = copy->next) {
        copy->status = Status::io_error;
    }
    const std::string error = fmt::format("driver error {}", static_cast<int>(result));
    if (context_lost(stream())) {
        state_.fail(error, "the submission of copies");
    } else {
        LogLine(spdlog::level::err)
            .with("device", state_.id)
            .with("error", error)
            .log("{}: copies were refused: {}", state_.id, error);
    }
}

bool EngineStream::take_ended(CopyQueue& ended) {
    if (!counter_.take_ended(ended)) return false;
    state_.engine_copies.fetch_sub(1, std::memory_order_relaxed);
    return true;
}

void EngineStream::take_all(CopyQueue& all) {
    state_.engine_copies.fetch_sub(static_cast<std::int32_t>(counter_.in_flight()),
                                   std::memory_order_relaxed);
    counter_.take_all(all);
}

}  // namespace gpunbd::storage::cuda
