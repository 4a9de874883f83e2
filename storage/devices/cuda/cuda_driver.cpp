#include "storage/devices/cuda/cuda_driver.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "storage/devices/cuda/cuda_device.hpp"
#include "storage/devices/cuda/cuda_diagnosis.hpp"
#include "storage/devices/cuda/cuda_info.hpp"
#include "storage/devices/gpu/nvidia_card.hpp"

namespace gpunbd::storage::cuda {

namespace {

class CudaDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "cuda"; }
    bool drives_gpus() const override { return true; }
    config::DriverInfo info() const override { return cuda_info(); }
    diagnosis::Diagnoses diagnose(const diagnosis::Machine& machine) const override {
        return diagnose_cards(*this, machine);
    }
    std::vector<std::string> enumerate(std::string& why_none) const override {
        std::vector<std::string> ids;
        const int count = cuda_device_count(why_none);
        ids.reserve(static_cast<std::size_t>(count));
        for (int ordinal = 0; ordinal < count; ++ordinal) {
            ids.push_back(fmt::format("{}:{}", scheme(), ordinal));
        }
        if (!ids.empty()) return ids;
        const std::string remedy = gpu_remedy(nvidia_cards(), true);
        if (!remedy.empty()) why_none += ", but " + remedy;
        return ids;
    }
    std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                 const DeviceOptions& options) const override {
        std::string why_none;
        const std::vector<std::string> ids = enumerate(why_none);
        const auto found = std::find(ids.begin(), ids.end(), id);
        if (found == ids.end()) return nullptr;
        return open_cuda_device(number, static_cast<int>(found - ids.begin()), options);
    }
};

}  // namespace

const DeviceDriver& cuda_driver() {
    static const CudaDriver driver;
    return driver;
}

}  // namespace gpunbd::storage::cuda
