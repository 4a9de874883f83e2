#include "storage/devices/cuda/cuda_driver.hpp"

#include <fmt/format.h>

#include <optional>

#include "storage/devices/cuda/cuda_device.hpp"
#include "storage/devices/cuda/cuda_diagnosis.hpp"

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
        return ids;
    }
    std::unique_ptr<Device> open(std::string_view id, std::uint32_t number,
                                 const DeviceOptions& options) const override {
        const std::optional<int> ordinal = find_cuda_device(id);
        if (!ordinal) return nullptr;
        return open_cuda_device(number, *ordinal, options, std::string(id));
    }
};

}  // namespace

const DeviceDriver& cuda_driver() {
    static const CudaDriver driver;
    return driver;
}

}  // namespace gpunbd::storage::cuda
