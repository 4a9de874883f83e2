#include "storage/devices/vulkan/vulkan_driver.hpp"

#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

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
    const gpunbd::test::TemporaryFolder root;
    const EmptyDriver driver;
    const auto diagnose = [&] {
        return vulkan::diagnose_gpus(driver, diagnosis::Machine(root.path()));
    };
    CHECK(diagnose().empty());
    const std::string card = "sys/bus/pci/devices/0000:03:00.0";
    root.write(card + "/class", "0x030000\n");
    root.write(card + "/vendor", "0x1002\n");
    const auto found = diagnose();
    REQUIRE(found.size() == 1);
    CHECK(found[0].verdict == Diagnosis::Verdict::warn);
    CHECK(found[0].is == "none, but there is 0000:03:00.0: there is no driver");
    root.write(card + "/vendor", "0x10de\n");  // CUDA reports it
    CHECK(diagnose().empty());
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
