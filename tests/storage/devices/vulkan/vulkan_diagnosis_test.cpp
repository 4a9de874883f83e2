#include "storage/devices/vulkan/vulkan_driver.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace gpunbd::storage;
using diagnosis::Diagnosis;

namespace {

// A driver without devices.
class EmptyDriver final : public DeviceDriver {
 public:
    std::string_view scheme() const override { return "vulkan"; }
    bool drives_gpus() const override { return true; }
    std::vector<std::string> enumerate(std::string& why_none) const override {
        why_none = "there is no driver";
        return {};
    }
    std::unique_ptr<Device> open(std::string_view, std::uint32_t,
                                 const DeviceOptions&) const override {
        return nullptr;
    }
};

}  // namespace

TEST_CASE("Vulkan: doctor reports a GPU of AMD or Intel without a driver") {
    namespace fs = std::filesystem;
    const fs::path root =
        fs::temp_directory_path() / ("gpunbd-doctor-" + std::to_string(::getpid()));
    const EmptyDriver driver;
    CHECK(vulkan::diagnose_gpus(driver, diagnosis::Machine(root)).empty());
    const fs::path card = root / "sys/bus/pci/devices/0000:03:00.0";
    fs::create_directories(card);
    std::ofstream(card / "class") << "0x030000\n";
    std::ofstream(card / "vendor") << "0x1002\n";
    const auto found = vulkan::diagnose_gpus(driver, diagnosis::Machine(root));
    REQUIRE(found.size() == 1);
    CHECK(found[0].verdict == Diagnosis::Verdict::warn);
    CHECK(found[0].is == "none, but there is 0000:03:00.0: there is no driver");
    std::ofstream(card / "vendor") << "0x10de\n";  // CUDA reports it
    CHECK(vulkan::diagnose_gpus(driver, diagnosis::Machine(root)).empty());
    fs::remove_all(root);
}

TEST_CASE("Vulkan: doctor warns about memory that the CPU cannot address") {
    DeviceInfo gpu;
    gpu.id = "vulkan:1";
    gpu.access = "mapped: writes are received into GPU memory";
    CHECK(vulkan::check_access(gpu).verdict == Diagnosis::Verdict::ok);
    gpu.access = "not mapped (the CPU cannot address all of its memory): by transfers";
    CHECK(vulkan::check_access(gpu).verdict == Diagnosis::Verdict::warn);
    CHECK(vulkan::check_access(gpu).what == "memory of vulkan:1");
}
