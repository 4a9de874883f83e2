#include "server/exports/device_registry.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "server/exports/nvidia_card.hpp"
#include "storage/devices/host/host_device.hpp"
#ifdef GPUNBD_CUDA
#include "storage/devices/cuda/cuda_device.hpp"
#endif

namespace gpunbd::server {

namespace {

#ifdef GPUNBD_CUDA
std::unique_ptr<storage::Device> open_gpu(std::uint32_t number,
                                          const config::DeviceOptions& options) {
    int ordinal = 0;
    const std::string digits = options.id.substr(options.id.find(':') + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    storage::cuda::CudaDeviceOptions cuda;
    cuda.reserve = options.reserve;
    cuda.capacity = options.capacity;
    cuda.mapped = options.mapped;
    switch (options.gpu_use) {
        case config::GpuUse::automatic:
            cuda.gpu_use = storage::GpuUse::automatic;
            break;
        case config::GpuUse::copy_engines:
            cuda.gpu_use = storage::GpuUse::copy_engines;
            break;
        case config::GpuUse::all:
            cuda.gpu_use = storage::GpuUse::all;
            break;
    }
    return storage::cuda::open_cuda_device(number, ordinal, cuda);
}
#else
std::unique_ptr<storage::Device> open_gpu(std::uint32_t, const config::DeviceOptions&) {
    return nullptr;  // refuse_absent() lets none come here
}
#endif

// A device that is not there is told beside those that are.
void refuse_absent(const std::string& id) {
    std::string why_none;
    const std::vector<std::string> gpus = DeviceRegistry::gpus(why_none);
    if (id == "host" || std::find(gpus.begin(), gpus.end(), id) != gpus.end()) return;
    if (gpus.empty()) {
        throw std::runtime_error(
            fmt::format("{}: no GPU can be used: {}; without one, choose host", id, why_none));
    }
    throw std::runtime_error(
        fmt::format("{}: there is no such GPU; choose one of host, {}", id, fmt::join(gpus, ", ")));
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
    refuse_absent(id);
    const config::DeviceOptions options = options_of(id);
    const auto number = static_cast<std::uint32_t>(devices_.size());
    devices_.push_back(id == "host"
                           ? storage::open_host_device(
                                 number, {.reserve = options.reserve, .capacity = options.capacity})
                           : open_gpu(number, options));
    opened_with_.push_back(options);
    if (calibrate_) calibrate(*devices_.back());
    return *devices_.back();
}

std::vector<std::string> DeviceRegistry::opened_otherwise() const {
    std::vector<std::string> ids;
    for (const config::DeviceOptions& options : opened_with_) {
        if (options_of(options.id) != options) ids.push_back(options.id);
    }
    return ids;
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
    constexpr bool built_with_cuda = true;
#else
    why_none = "this gpunbd was built without CUDA";
    constexpr bool built_with_cuda = false;
#endif
    if (!ids.empty()) return ids;
    const std::string remedy = gpu_remedy(nvidia_cards(), built_with_cuda);
    if (!remedy.empty()) why_none += ", but " + remedy;
    return ids;
}

}  // namespace gpunbd::server
