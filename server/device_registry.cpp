#include "server/device_registry.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "storage/host_device.hpp"
#ifdef GPUNBD_CUDA
#include "storage/cuda/cuda_device.hpp"
#endif

namespace gpunbd::server {

namespace {

std::unique_ptr<storage::Device> open_gpu(std::uint32_t number,
                                          const config::DeviceOptions& options) {
#ifdef GPUNBD_CUDA
    int ordinal = 0;
    const std::string digits = options.id.substr(options.id.find(':') + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    std::string why_none;
    const int count = storage::cuda::cuda_device_count(why_none);
    if (ordinal >= count) {
        throw std::runtime_error(
            count == 0 ? fmt::format("{}: no GPU can be used here: {}", options.id, why_none)
                       : fmt::format("{}: there is no such GPU; the last one is cuda:{}",
                                     options.id, count - 1));
    }
    storage::cuda::CudaDeviceOptions cuda;
    cuda.reserve = options.reserve;
    cuda.capacity = options.capacity;
    cuda.mapped = options.mapped;
    cuda.resident = options.resident;
    return storage::cuda::open_cuda_device(number, ordinal, cuda);
#else
    static_cast<void>(number);
    throw std::runtime_error(
        fmt::format("{}: this gpunbd was built without the CUDA toolkit", options.id));
#endif
}

}  // namespace

DeviceRegistry::DeviceRegistry(std::vector<config::DeviceOptions> options, bool calibrate)
    : options_(std::move(options)), calibrate_(calibrate) {}

config::DeviceOptions DeviceRegistry::options_of(const std::string& id) const {
    for (const config::DeviceOptions& options : options_) {
        if (options.id == id) return options;
    }
    config::DeviceOptions defaults;
    defaults.id = id;
    return defaults;
}

storage::Device& DeviceRegistry::open(const std::string& id) {
    for (const auto& device : devices_) {
        if (device->info().id == id) return *device;
    }
    const config::DeviceOptions options = options_of(id);
    const auto number = static_cast<std::uint32_t>(devices_.size());
    devices_.push_back(id == "host"
                           ? storage::open_host_device(
                                 number, {.reserve = options.reserve, .capacity = options.capacity})
                           : open_gpu(number, options));
    if (calibrate_) calibrate(*devices_.back());
    return *devices_.back();
}

void DeviceRegistry::calibrate(storage::Device& device) {
    if (device.info().id == "host") return;
#ifdef GPUNBD_CUDA
    try {
        calibrations_[device.info().id] = storage::cuda::calibrate_cuda_device(device).table;
    } catch (const std::exception& error) {
        spdlog::warn("{}: not calibrated, the built-in choice of paths stands: {}",
                     device.info().id, error.what());
    }
#endif
}

std::string DeviceRegistry::calibration(const std::string& id) const {
    const auto found = calibrations_.find(id);
    return found == calibrations_.end() ? std::string() : found->second;
}

std::vector<int> DeviceRegistry::numa_nodes() const {
    std::vector<int> nodes;
    for (const auto& device : devices_) {
        const int node = device->info().numa_node;
        if (node >= 0 && std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
            nodes.push_back(node);
        }
    }
    return nodes;
}

std::vector<std::string> DeviceRegistry::gpus(std::string& why_none) {
    std::vector<std::string> ids;
#ifdef GPUNBD_CUDA
    const int count = storage::cuda::cuda_device_count(why_none);
    ids.reserve(static_cast<std::size_t>(count));
    for (int ordinal = 0; ordinal < count; ++ordinal)
        ids.push_back(fmt::format("cuda:{}", ordinal));
#else
    why_none = "this gpunbd was built without the CUDA toolkit";
#endif
    return ids;
}

}  // namespace gpunbd::server
