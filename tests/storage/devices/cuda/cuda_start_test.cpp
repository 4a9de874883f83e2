// Each reason for which CUDA finds no GPU has a remedy of its own.
#include "storage/devices/cuda/cuda_start.hpp"

#include "tests/test.hpp"

namespace gpunbd::storage::cuda::test {
namespace {

// A machine with a card and a loaded driver.
CudaStart failed(int error) {
    return {.error = error,
            .error_text = "name (text)",
            .supported = 13000,
            .needed = 13000,
            .driver_loaded = true,
            .cards = {"0000:01:00.0"}};
}

TEST_CASE("CUDA start: each error names its remedy") {
    const auto has = [](const CudaStart& start, const char* text) {
        const std::string reason = reason_without_gpu(start);
        CAPTURE(reason);
        // Only a machine without a driver needs one.
        CHECK(reason.find("install NVIDIA's driver") == reason.npos);
        return reason.find(text) != reason.npos;
    };
    CHECK(has(failed(46), "name (text): another process uses the GPU exclusively"));
    CHECK(has(failed(802), "systemctl enable --now nvidia-fabricmanager"));
    CHECK(has(failed(803), "restart the machine after an update of the driver"));
    CHECK(has(failed(804), "remove it from LD_LIBRARY_PATH"));
    CHECK(has(failed(999), "modprobe nvidia-uvm"));
    CHECK(has(failed(1), "name (text): dmesg has"));
    CHECK(has(failed(100), "there is an NVIDIA card (0000:01:00.0): if MIG mode is on"));
    CHECK(has(failed(0), "if MIG mode is on"));

    CudaStart start = failed(100);
    start.chosen = true;
    CHECK(has(start, "CUDA_VISIBLE_DEVICES selects no GPU: unset it"));
    start = failed(100);
    start.cards.clear();
    CHECK(reason_without_gpu(start) == "the NVIDIA driver sees no GPU");
    start = failed(35);
    start.supported = 12020;
    CHECK(has(start, "supports CUDA 12.2, this program needs 13.0: update the driver"));
    start = failed(35);
    start.supported = 0;
    CHECK(has(start, "there is no libcuda.so.1: install the package libcuda1"));
}

TEST_CASE("CUDA start: a machine without a driver needs one") {
    CudaStart start = failed(35);
    start.supported = 0;
    start.driver_loaded = false;
    CHECK(contains(reason_without_gpu(start),
                   "(there is no libcuda.so.1), but there is an NVIDIA card "
                   "(0000:01:00.0): install NVIDIA's driver"));
    start.cards.clear();
    CHECK(reason_without_gpu(start) == "no NVIDIA driver is installed (there is no libcuda.so.1)");
}

}  // namespace
}  // namespace gpunbd::storage::cuda::test
