#include "storage/devices/cuda/cuda_start.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "storage/devices/gpu/nvidia_card.hpp"

namespace gpunbd::storage::cuda {

namespace {

// Values of cudaError_t, which are those of CUresult.
constexpr int insufficient_driver = 35;
constexpr int no_device = 100;

struct Remedy {
    int error;
    std::string_view text;
};
constexpr std::array<Remedy, 8> remedies{{
    {46,
     "another process uses the GPU exclusively; end it, or permit several with nvidia-smi -c "
     "DEFAULT"},
    {304, "permit the server's user to open /dev/nvidia*, and check ulimit -n"},
    {802,
     "the GPUs wait for NVIDIA's fabric manager; start the one of the driver's version, on the "
     "host: systemctl enable --now nvidia-fabricmanager"},
    {803,
     "libcuda.so.1 and the loaded kernel module are of different versions; restart the machine "
     "after an update of the driver, or the container"},
    {804,
     "libcuda.so.1 is that of cuda-compat, which does not support this GPU; remove "
     "it from LD_LIBRARY_PATH, and update the driver"},
    {805, "restart NVIDIA's MPS server, or unset CUDA_MPS_PIPE_DIRECTORY"},
    {807, "restart NVIDIA's MPS server, or unset CUDA_MPS_PIPE_DIRECTORY"},
    {999,
     "load the kernel module nvidia-uvm (modprobe nvidia-uvm), and again after the machine was "
     "suspended; in a container, pass /dev/nvidia-uvm (--gpus all)"},
}};

std::string version_text(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string reason_without_library(const CudaStart& start) {
    if (start.driver_loaded) {
        return "the NVIDIA kernel module is loaded, but there is no libcuda.so.1: install the "
               "package libcuda1 of the driver's version; in a container, pass the library on "
               "(--gpus all, NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics)";
    }
    const std::string remedy = gpu_remedy(start.cards, true);
    return fmt::format("no NVIDIA driver is installed (there is no libcuda.so.1){}{}",
                       remedy.empty() ? "" : ", but ", remedy);
}

std::string reason_without_device(const CudaStart& start) {
    if (start.chosen) {
        return "CUDA_VISIBLE_DEVICES selects no GPU: unset it, or set it to numbers or UUIDs that "
               "nvidia-smi -L prints";
    }
    constexpr std::string_view none = "the NVIDIA driver sees no GPU";
    if (start.cards.empty()) return std::string(none);
    return fmt::format(
        "{}, but there {}: if MIG mode is on (nvidia-smi -L), create an instance with nvidia-smi "
        "mig -cgi; in a container, pass the GPU (--gpus all); otherwise see dmesg",
        none,
        start.cards.size() == 1 ? fmt::format("is an NVIDIA card ({})", start.cards[0])
                                : fmt::format("are {} NVIDIA cards", start.cards.size()));
}

}  // namespace

std::string reason_without_gpu(const CudaStart& start) {
    if (start.supported == 0) return reason_without_library(start);
    if (start.error == insufficient_driver) {
        return fmt::format(
            "the NVIDIA driver supports CUDA {}, this program needs {}: update the driver",
            version_text(start.supported), version_text(start.needed));
    }
    if (start.error == 0 || start.error == no_device) return reason_without_device(start);
    const auto* const found = std::ranges::find(remedies, start.error, &Remedy::error);
    return fmt::format(
        "{}: {}", start.error_text,
        found != remedies.end() ? found->text : "dmesg has the NVIDIA driver's messages (NVRM)");
}

}  // namespace gpunbd::storage::cuda
