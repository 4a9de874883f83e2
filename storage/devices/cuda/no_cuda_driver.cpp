// The driver of `cuda:N` in builds without CUDA: it has no devices and reports the reason.
#include "storage/devices/cuda/cuda_diagnosis.hpp"
#include "storage/devices/cuda/cuda_driver.hpp"
#include "storage/devices/gpu/nvidia_card.hpp"

namespace gpunbd::storage::cuda {

namespace {

class NoCudaDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "cuda"; }
    bool drives_gpus() const override { return true; }
    config::DriverInfo info() const override { return cuda_info(); }
    diagnosis::Diagnoses diagnose(const diagnosis::Machine& machine) const override {
        return diagnose_cards(*this, machine);
    }
    std::vector<std::string> enumerate(std::string& why_none) const override {
        why_none = "this gpunbd was built without CUDA";
        const std::string remedy = gpu_remedy(nvidia_cards(), false);
        if (!remedy.empty()) why_none += ", but " + remedy;
        return {};
    }
    std::unique_ptr<Device> open(std::string_view, std::uint32_t,
                                 const DeviceOptions&) const override {
        return nullptr;
    }
};

}  // namespace

const DeviceDriver& cuda_driver() {
    static const NoCudaDriver driver;
    return driver;
}

}  // namespace gpunbd::storage::cuda
