// The results of calibration, passed from one server to the next.
#include "server/handover/kept_device_state.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/server/supervisor/living_supervisor.hpp"

namespace gpunbd::server::test {
namespace {

using States = KeptCalibration::States;

OwnedFd memory_of(const std::string& text) {
    OwnedFd fd(::memfd_create("calibration", MFD_CLOEXEC));
    REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return fd;
}

TEST_CASE("kept calibration: passed to the next server and stored once") {
    LivingSupervisor supervisor;
    const NotifySocket way = supervisor.way();
    const States found{{"GPU-1", "line\n2 3\n"}, {"GPU-\"2\"", "\x01 and \xc3\xbc"}};
    {
        PassedDescriptors none = supervisor.hand_over(way);
        DescriptorStore store(way, std::nullopt, none.names());
        KeptCalibration calibration(store, none);
        CHECK(calibration.states().empty());
        calibration.keep({});
        CHECK(supervisor.names(way).empty());
        calibration.keep({{"GPU-1", "older"}});
        calibration.keep(found);
        calibration.keep(found);
        CHECK(supervisor.names(way) == std::vector<std::string>{"gpunbd/calibration"});
    }
    PassedDescriptors handed_over = supervisor.hand_over(way);
    DescriptorStore store(way, std::nullopt, handed_over.names());
    const KeptCalibration calibration(store, handed_over);
    CHECK(calibration.states() == found);
    CHECK(handed_over.names().empty());
}

TEST_CASE("kept calibration: invalid data cause a new calibration") {
    for (const std::string& text :
         {std::string(), std::string("x"), std::string("{"), std::string("[]"), std::string("1"),
          std::string(R"({"GPU-1": 1})"), std::string(R"({"GPU-1": "a"} trailing)"),
          std::string(R"({"GPU-1": {"a": "b"}})"), std::string(1000, '['),
          '"' + std::string(2 << 20, 'x') + '"'}) {
        CAPTURE(text.substr(0, 40));
        LivingSupervisor supervisor;
        const NotifySocket way = supervisor.way();
        PassedDescriptors::Descriptors descriptors;
        descriptors.emplace("gpunbd/calibration", memory_of(text));
        PassedDescriptors handed_over(std::move(descriptors));
        DescriptorStore store(way, std::nullopt, handed_over.names());
        KeptCalibration calibration(store, handed_over);
        CHECK(calibration.states().empty());
        CHECK(handed_over.names().empty());
        calibration.keep({{"GPU-1", "measured"}});
        CHECK(supervisor.names(way).size() == 1);
    }
}

}  // namespace
}  // namespace gpunbd::server::test
