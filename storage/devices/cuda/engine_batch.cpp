#include "storage/devices/cuda/engine_batch.hpp"

#include <utility>

#include "storage/assertions/assert.hpp"

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

}  // namespace gpunbd::storage::cuda
